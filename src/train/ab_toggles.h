// The optimisations that a recipe can have off and on.
#pragma once

#include <string>
#include <vector>

namespace lode {

// Both sides say all that the comparison rests on, so that they differ in the optimisation alone whatever the
// recipe itself asks for. "@" in an override stands for an existing folder that the run may write to.
struct Toggle {
  const char* name;
  std::vector<std::string> off, on;
  const char* fact;  // name of the fact that says whether it is in effect; "": none
};

const std::vector<Toggle>& ab_toggles();

}  // namespace lode
