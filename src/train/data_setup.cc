#include "train/data_setup.h"

#include <chrono>
#include <cstdlib>

#include "core/fail.h"
#include "data/data_sets.h"
#include "train/chat_setup.h"

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

MixOptions mix_options(const Recipe& recipe) {
  switch (recipe.mix_strategy) {
    case Recipe::Mixing::concat:
      return {};
    case Recipe::Mixing::interleave_under:
      return {Mixing::interleave_under, recipe.interleave_probs};
    case Recipe::Mixing::interleave_over:
      return {Mixing::interleave_over, recipe.interleave_probs};
  }
  LODE_ASSERT(false);
}

// One data set, from the cache when it can be.
std::shared_ptr<const PreparedData> prepare_one(FileSystem& files, const Recipe& recipe,
                                                const std::vector<SourceFile>& sources,
                                                const TextEncoder& encoder, int threads,
                                                const std::string& name, Log& log) {
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
  auto data = prepare_data(files, sources, encoder, options);
  const PrepareReport& report = data->report();
  for (const std::string& note : report.notes) log.warning("{}", note);
  for (const std::string& line : report.read.lines()) log.warning("{}: {}", name, line);
  return data;
}

struct Prepared {
  std::shared_ptr<const PreparedData> data;
  RowOptions rows;
};

// Data sets of chats, each on its own, so that rows know theirs.
Prepared prepare_chats(FileSystem& files, const Recipe& recipe, const std::vector<std::string>& entries,
                       const Tokenizer& tokenizer, int threads, const std::string& name, Log& log) {
  const auto encoder = make_chat_encoder(recipe, tokenizer, log);
  Prepared prepared{nullptr, row_options(recipe, tokenizer)};
  std::vector<PreparedData::NamedData> parts;
  for (DataSetSource& set : find_data_sets(files, recipe.dataset_dir, entries)) {
    // A plain JSON file of another field than `text` is said with text_column, as in pre-training.
    if (!set.schema.columns.text && recipe.text_column != "text")
      set.schema.columns.text = recipe.text_column;
    const TextEncoder text = chat_text_encoder(encoder, set.schema, read_options(recipe).bad_records);
    const std::string label = entries.size() > 1 ? format("{}, {}", name, set.name) : name;
    parts.push_back({set.name, prepare_one(files, recipe, set.files, text, threads, label, log)});
    prepared.rows.set_limits.push_back(set.num_samples);
  }
  prepared.data = PreparedData::join(parts);
  return prepared;
}

Prepared prepare(FileSystem& files, const Recipe& recipe, const std::vector<std::string>& entries,
                 const Tokenizer& tokenizer, int threads, const std::string& name, Log& log) {
  if (recipe.stage == Recipe::Stage::sft) {
    return prepare_chats(files, recipe, entries, tokenizer, threads, name, log);
  }
  const TextEncoder encoder = text_encoder(tokenizer);
  const RowOptions rows = row_options(recipe, tokenizer);
  if (recipe.mix_strategy == Recipe::Mixing::concat) {
    const auto sources = find_sources(files, recipe.data_paths(entries));
    return {prepare_one(files, recipe, sources, encoder, threads, name, log), rows};
  }
  std::vector<PreparedData::NamedData> parts;
  for (const std::string& entry : entries) {
    const auto sources = find_sources(files, recipe.data_paths(std::span(&entry, 1)));
    parts.push_back(
        {entry, prepare_one(files, recipe, sources, encoder, threads, format("{}, {}", name, entry), log)});
  }
  return {PreparedData::join(parts), rows};
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
  encoder.encode = [tokenizer, eos = tokenizer.eos_id()](std::string_view text,
                                                         std::vector<std::int32_t>& tokens) {
    // Text that spells a special token is text: a document cannot end itself. A document begins as the
    // tokenizer begins one (bos, for the models that were trained so); its end is the preparation's.
    tokenizer.encode_to(text, tokens, {.add_special_tokens = true, .parse_special = false});
    if (eos && !tokens.empty() && tokens.back() == *eos) tokens.pop_back();
  };
  encoder.vocab_size = tokenizer.vocab_size();
  encoder.eos_id = tokenizer.eos_id();
  const bool adds = !tokenizer.encode("", {.add_special_tokens = true}).empty();
  encoder.fingerprint = tokenizer.fingerprint() + (adds ? "+special" : "");
  return encoder;
}

std::shared_ptr<const ChatEncoder> make_chat_encoder(const Recipe& recipe, const Tokenizer& tokenizer,
                                                     Log& log) {
  std::optional<ChatTemplate> chat_template;
  // Without any, prompts with completions and plain text can still be trained on.
  if (tokenizer.chat_template() || !recipe.chat_template.empty()) {
    chat_template = resolve_chat_template(tokenizer, recipe.chat_template, log).chat_template;
  }
  ChatEncodeOptions options;
  options.default_system = recipe.default_system;
  options.train_on_prompt = recipe.train_on_prompt;
  options.mask_history = recipe.mask_history;
  options.variables = template_variables(recipe.enable_thinking);
  return std::make_shared<const ChatEncoder>(tokenizer, std::move(chat_template), std::move(options));
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
  Prepared prepared = prepare(files, recipe, paths, tokenizer, threads, name, log);
  RowSets sets = make_rows(std::move(prepared.data), prepared.rows);
  log_report(log, sets.train.report(), name);
  return std::make_shared<const Rows>(std::move(sets.train));
}

DataSets prepare_data_sets(FileSystem& files, const Recipe& recipe, const Tokenizer& tokenizer, int threads,
                           Log& log) {
  DataSets sets;
  if (recipe.streaming) {
    sets.stream = open_stream(files, recipe, tokenizer, log);
  } else {
    Prepared prepared = prepare(files, recipe, recipe.dataset, tokenizer, threads, "train", log);
    prepared.rows.mix = mix_options(recipe);
    const auto seed = static_cast<std::uint64_t>(recipe.data_seed.value_or(recipe.seed));
    RowSets rows = make_rows(std::move(prepared.data), prepared.rows, recipe.val_size, seed);
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
