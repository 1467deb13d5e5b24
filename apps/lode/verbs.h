// The verbs of `lode`: each adds its sub-command, whose callback does the work and prints.
#pragma once

namespace CLI {
class App;
}

namespace lode {

void add_doctor_verb(CLI::App& app);
void add_recipe_verb(CLI::App& app);

}  // namespace lode
