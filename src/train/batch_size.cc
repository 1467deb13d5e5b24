#include "train/batch_size.h"

#include <algorithm>
#include <functional>
#include <map>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::int64_t kEnoughTokens = 65536;

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> out;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) out.push_back(d);
  }
  return out;
}

// Peaks of runs by the rows of their micro-batch, each rehearsed once.
class Rehearsals {
 public:
  Rehearsals(std::size_t limit, std::function<std::size_t(std::int64_t)> peak_of)
      : limit_(limit), peak_of_(std::move(peak_of)) {}

  bool fits(std::int64_t rows) {
    if (limit_ == 0) return true;
    auto found = peaks_.find(rows);
    if (found == peaks_.end()) found = peaks_.emplace(rows, measure(rows)).first;
    return found->second && *found->second <= limit_;
  }

  // The last of the ascending sizes that fits, in steps of doubled length; the first when none does.
  std::size_t last_that_fits(const std::vector<std::int64_t>& sizes) {
    std::size_t good = 0, bad = sizes.size();
    for (std::size_t i = 1; i < bad; i *= 2) {
      if (!fits(sizes[i])) bad = i;
      if (i < bad) good = i;
    }
    while (bad - good > 1) {
      const std::size_t middle = good + (bad - good) / 2;
      (fits(sizes[middle]) ? good : bad) = middle;
    }
    return good;
  }

  std::string text(std::int64_t rows) {
    fits(rows);
    const std::optional<std::size_t> peak = peaks_.at(rows);
    const char* takes = rows == 1 ? " takes" : "s take";
    if (!peak) return format("{} row{} more than activation_memory", rows, takes);
    return format("{} row{} {}", rows, takes, format_bytes(*peak));
  }

 private:
  std::optional<std::size_t> measure(std::int64_t rows) {
    try {
      return peak_of_(rows);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory) throw;
      return std::nullopt;  // activation_memory has no room for it
    }
  }

  std::size_t limit_;
  std::function<std::size_t(std::int64_t)> peak_of_;
  std::map<std::int64_t, std::optional<std::size_t>> peaks_;
};

struct Candidates {
  std::vector<std::int64_t> sizes;  // ascending
  std::int64_t rows_per_step = 0;   // 0: follows from the micro-batch
  std::string why;
};

Candidates find_candidates(const Recipe& recipe, const Rows* rows,
                           const std::optional<EarlierBatch>& earlier) {
  Candidates out;
  if (recipe.global_batch_size || earlier) {
    out.rows_per_step = recipe.global_batch_size ? *recipe.global_batch_size : earlier->rows_per_step;
    // Gradients that live until their update alone cannot be accumulated.
    out.sizes = recipe.optim_in_backward ? std::vector{out.rows_per_step} : divisors(out.rows_per_step);
    out.why =
        format("{} of {} rows", recipe.global_batch_size ? "global_batch_size" : "the resumed run's step",
               out.rows_per_step);
    return out;
  }
  std::int64_t most = std::max<std::int64_t>(kEnoughTokens / recipe.cutoff_len, 1);
  if (rows != nullptr)
    most = std::min(most, std::max<std::int64_t>(rows->size() / recipe.gradient_accumulation_steps, 1));
  for (std::int64_t size = 1; size <= most; ++size) out.sizes.push_back(size);
  out.why = "the global batch follows from it: give global_batch_size to have the same on any machine";
  return out;
}

}  // namespace

std::optional<Fact> choose_batch_size(FileSystem& files, Recipe& recipe, const ModelParts& parts,
                                      const std::string& model_path, const DataSets& data, std::size_t limit,
                                      const std::optional<EarlierBatch>& earlier) {
  if (recipe.per_device_train_batch_size != Recipe::kAutoBatch) return std::nullopt;
  const Candidates candidates = find_candidates(recipe, data.train.get(), earlier);
  const std::int64_t total = candidates.rows_per_step;
  const auto cut = [&](Recipe& changed, std::int64_t size) {
    changed.per_device_train_batch_size = size;
    if (total > 0) changed.gradient_accumulation_steps = total / size;
  };
  Rehearsals rehearsals(limit, [&](std::int64_t size) {
    Recipe changed = recipe;
    cut(changed, size);
    changed.eval_strategy = Recipe::When::no;  // which needs the same with all of them
    return plan_memory(files, changed, parts, model_path, data).peak();
  });
  const auto& sizes = candidates.sizes;
  const auto before = earlier ? std::ranges::find(sizes, earlier->rows) : sizes.end();
  const bool again = before != sizes.end() && rehearsals.fits(*before);
  const std::size_t chosen = again ? static_cast<std::size_t>(before - sizes.begin())
                             : rehearsals.fits(sizes.back()) ? sizes.size() - 1
                                                             : rehearsals.last_that_fits(sizes);
  cut(recipe, sizes[chosen]);
  std::string why = again ? "as before the save" : "";
  if (!again && limit != 0) {
    why = format("memory_limit allows {}: {}", format_bytes(limit), rehearsals.text(sizes[chosen]));
    if (chosen + 1 < sizes.size()) why += ", " + rehearsals.text(sizes[chosen + 1]);
  }
  return Fact{"micro-batch", "auto",
              format("{} rows x {}", sizes[chosen], recipe.gradient_accumulation_steps),
              format("{}{}{}", why, why.empty() ? "" : "; ", candidates.why)};
}

}  // namespace lode
