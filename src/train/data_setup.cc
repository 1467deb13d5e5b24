#include "train/data_setup.h"

#include <chrono>
#include <cstdlib>

#include "core/fail.h"

namespace lode {
namespace {

ReadOptions read_options(const Recipe& recipe) {
  ReadOptions options;
  options.text_column = recipe.text_column;
  options.bad_records = recipe.bad_record == Recipe::BadRecord::skip ? BadRecords::skip : BadRecords::fail;
  options.separator = recipe.separator_text();
  return options;
}

RowOptions row_options(const Recipe& recipe, const Tokenizer& tokenizer) {
  RowOptions options;
  options.packing = !recipe.packing                                        ? Packing::none
                    : recipe.packing_strategy == Recipe::Packing::best_fit ? Packing::best_fit
                                                                           : Packing::blocks;
  options.cutoff_len = static_cast<std::int32_t>(recipe.cutoff_len);
  switch (recipe.truncation_strategy) {
    case Recipe::TooLong::truncate:
      options.too_long = TooLong::truncate;
      break;
    case Recipe::TooLong::split:
      options.too_long = TooLong::split;
      break;
    case Recipe::TooLong::drop:
      options.too_long = TooLong::drop;
      break;
  }
  options.max_documents = recipe.max_samples.value_or(0);
  options.bytes_per_token = token_byte_counts(tokenizer);
  return options;
}

std::shared_ptr<const PreparedData> prepare(FileSystem& files, const Recipe& recipe,
                                            const std::vector<std::string>& entries,
                                            const Tokenizer& tokenizer, int threads, const std::string& name,
                                            Log& log) {
  const auto sources = find_sources(files, recipe.data_paths(entries));
  PrepareOptions options;
  options.read = read_options(recipe);
  options.cache = join_path(cache_folder(), "tokens");
  options.threads =
      recipe.preprocessing_num_workers > 0 ? static_cast<int>(recipe.preprocessing_num_workers) : threads;
  auto shown = std::chrono::steady_clock::now();
  options.progress = [&](std::int64_t bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown < std::chrono::seconds(5)) return;
    shown = now;
    log.info("{}: {} of text tokenised", name, format_bytes(static_cast<std::uint64_t>(bytes)));
  };
  auto data = prepare_data(files, sources, text_encoder(tokenizer), options);
  const PrepareReport& report = data->report();
  for (const std::string& note : report.notes) log.warning("{}", note);
  for (const std::string& line : report.read.lines()) log.warning("{}: {}", name, line);
  return data;
}

void log_report(Log& log, const PackingReport& report, const std::string& name) {
  for (const std::string& line : report.lines(name)) log.info("{}", line);
}

std::shared_ptr<StreamLoader> open_stream(FileSystem& files, const Recipe& recipe, const Tokenizer& tokenizer,
                                          Log& log) {
  StreamOptions options;
  options.read = read_options(recipe);
  options.cutoff_len = static_cast<std::int32_t>(recipe.cutoff_len);
  options.max_documents = recipe.max_samples.value_or(0);
  options.bytes_per_token = token_byte_counts(tokenizer);
  options.rows_per_micro_batch = recipe.per_device_train_batch_size;
  options.micro_batches_per_step = recipe.gradient_accumulation_steps;
  options.on_bad_record = [&log](const std::string& what) { log.warning("train: skipped {}", what); };
  auto stream = std::make_shared<StreamLoader>(files, find_sources(files, recipe.data_paths(recipe.dataset)),
                                               text_encoder(tokenizer), std::move(options));
  log.info("train: streaming {} files ({}) in their order, without shuffling", stream->sources().size(),
           format_bytes(static_cast<std::uint64_t>(stream->num_bytes())));
  return stream;
}

}  // namespace

std::string cache_folder() {
  if (const char* folder = std::getenv("LODE_CACHE"); folder != nullptr && *folder != '\0') return folder;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base != '\0')
    return join_path(base, "lode");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return join_path(home, ".cache/lode");
  fail(ErrorKind::usage,
       "neither LODE_CACHE nor HOME is set: name a folder for prepared data with LODE_CACHE");
}

TextEncoder text_encoder(const Tokenizer& tokenizer) {
  TextEncoder encoder;
  encoder.encode = [tokenizer](std::string_view text, std::vector<std::int32_t>& tokens) {
    // Text that spells a special token is text: a document cannot end itself.
    tokenizer.encode_to(text, tokens, {.parse_special = false});
  };
  encoder.vocab_size = tokenizer.vocab_size();
  encoder.eos_id = tokenizer.eos_id();
  encoder.fingerprint = tokenizer.fingerprint();
  return encoder;
}

std::vector<std::int32_t> token_byte_counts(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> bytes(static_cast<std::size_t>(tokenizer.vocab_size()), 0);
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id))
      bytes[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(tokenizer.token_bytes(id).size());
  }
  return bytes;
}

std::shared_ptr<const Rows> prepare_rows(FileSystem& files, const Recipe& recipe,
                                         const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                                         int threads, const std::string& name, Log& log) {
  auto data = prepare(files, recipe, paths, tokenizer, threads, name, log);
  RowSets sets = make_rows(std::move(data), row_options(recipe, tokenizer));
  log_report(log, sets.train.report(), name);
  return std::make_shared<const Rows>(std::move(sets.train));
}

DataSets prepare_data_sets(FileSystem& files, const Recipe& recipe, const Tokenizer& tokenizer, int threads,
                           Log& log) {
  DataSets sets;
  if (recipe.streaming) {
    sets.stream = open_stream(files, recipe, tokenizer, log);
  } else {
    auto data = prepare(files, recipe, recipe.dataset, tokenizer, threads, "train", log);
    const auto seed = static_cast<std::uint64_t>(recipe.data_seed.value_or(recipe.seed));
    RowSets rows = make_rows(std::move(data), row_options(recipe, tokenizer), recipe.val_size, seed);
    log_report(log, rows.train.report(), "train");
    sets.train = std::make_shared<const Rows>(std::move(rows.train));
    if (recipe.val_size > 0) {
      log_report(log, rows.held_out.report(), "eval");
      sets.eval.push_back({"eval", std::make_shared<const Rows>(std::move(rows.held_out))});
    }
  }
  for (const Recipe::EvalSet& set : recipe.eval_dataset) {
    sets.eval.push_back(
        {set.name, prepare_rows(files, recipe, set.paths, tokenizer, threads, set.name, log)});
  }
  return sets;
}

}  // namespace lode
