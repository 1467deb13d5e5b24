// Several data sets as one order of documents.
#pragma once

#include <cstdint>
#include <vector>

namespace lode {

enum class Mixing {
  concat,            // all of the first, all of the second, ...
  interleave_under,  // in turns or by chance, until the first set is used up
  interleave_over,   // until every set has been used up; those that are begin again
};

struct MixOptions {
  Mixing mixing = Mixing::concat;
  // Chance of each set to give the next document, scaled to a sum of 1; empty: the sets take turns.
  std::vector<double> probabilities;
};

// Documents of all sets, in the order they are used; repeated by interleave_over. A function of the
// arguments. Throws Error(usage) when the probabilities do not fit the sets and Error(data) for a set without
// documents unless sets are concatenated.
std::vector<std::int64_t> mix_documents(const std::vector<std::vector<std::int64_t>>& sets,
                                        const MixOptions& options, std::uint64_t seed);

}  // namespace lode
