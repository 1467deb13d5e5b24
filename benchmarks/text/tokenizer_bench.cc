// Trains a tokenizer on a text and encodes it in documents of about 4 KB, with one thread and with two:
//   lode_bench_text TEXT VOCAB_SIZE PRE_TOKENIZER OUT_FOLDER
//   lode_bench_text TEXT TOKENIZER_FOLDER        (only encodes, with that tokenizer)
// Prints one JSON object; each figure is the best of five. The tokenizer is left in OUT_FOLDER.
// tools/tokenizer_fixtures/compare_speed.py sets the tokenizers package beside it in the same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/json.h"
#include "core/parallel.h"
#include "lode/error.h"
#include "text/bpe_trainer.h"

namespace lode {
namespace {

constexpr int kRuns = 5;
constexpr std::size_t kDocument = 4096;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string_view> cut(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n', std::min(kDocument, text.size())), text.size() - 1) + 1;
    documents.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return documents;
}

template <class F>
double best_of(F run) {
  double best = 1e30;
  for (int i = 0; i < kRuns; i++) {
    const double start = seconds_now();
    run();
    best = std::min(best, seconds_now() - start);
  }
  return best;
}

std::int64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string_view>& documents,
                        int threads) {
  std::vector<std::vector<std::int32_t>> ids(documents.size());
  parallel_tasks(threads, static_cast<std::int64_t>(documents.size()), [&](std::int64_t i, int) {
    ids[static_cast<std::size_t>(i)] = tokenizer.encode(documents[static_cast<std::size_t>(i)]);
  });
  std::int64_t total = 0;
  for (const auto& list : ids) total += static_cast<std::int64_t>(list.size());
  return total;
}

void measure_encoding(const Tokenizer& tokenizer, std::string_view text, Json& result) {
  const auto documents = cut(text);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::int64_t ids = 0;
  result["encode_mb_per_s_1"] = megabytes / best_of([&] { ids = encode_all(tokenizer, documents, 1); });
  result["encode_mb_per_s_2"] = megabytes / best_of([&] { ids = encode_all(tokenizer, documents, 2); });
  result["ids"] = ids;
}

Json measure_loaded(const std::string& path, const std::string& folder) {
  const std::string text = real_files().read(path);
  Json result = Json::object({{"bytes", static_cast<std::int64_t>(text.size())}});
  measure_encoding(Tokenizer::load(real_files(), folder), text, result);
  return result;
}

Json measure(const std::string& path, const BpeTrainOptions& options, const std::string& folder) {
  const std::string text = real_files().read(path);
  const auto train = [&] {
    bool given = false;
    return train_bpe([&](std::string& document) { return given ? false : (document = text, given = true); },
                     options);
  };
  const Tokenizer tokenizer = train();
  tokenizer.save(real_files(), folder);
  Json result =
      Json::object({{"bytes", static_cast<std::int64_t>(text.size())}, {"merges", tokenizer.num_merges()}});
  result["train_seconds"] = best_of([&] { train(); });
  measure_encoding(tokenizer, text, result);
  return result;
}

}  // namespace
}  // namespace lode

int main(int argc, char** argv) {
  if (argc != 5 && argc != 3) {
    std::fprintf(stderr, "usage: lode_bench_text TEXT VOCAB_SIZE PRE_TOKENIZER OUT_FOLDER | TEXT FOLDER\n");
    return 2;
  }
  try {
    if (argc == 3) {
      std::printf("%s\n", lode::measure_loaded(argv[1], argv[2]).dump().c_str());
      return 0;
    }
    const lode::BpeTrainOptions options{
        .vocab_size = std::atoll(argv[2]), .pre_tokenizer = argv[3], .threads = 2};
    std::printf("%s\n", lode::measure(argv[1], options, argv[4]).dump().c_str());
    return 0;
  } catch (const lode::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return lode::exit_code(error.kind());
  }
}
