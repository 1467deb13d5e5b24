#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "core/fail.h"
#include "core/file.h"
#include "core/parallel.h"
#include "data/records.h"
#include "text/bpe_trainer.h"
#include "train/recipe.h"
#include "verbs.h"

namespace lode {
namespace {

struct TokenizerArguments {
  std::vector<std::string> data, special;
  std::string output, path, text, separator, eos, bos, pad;
  std::vector<std::int32_t> ids;
  BpeTrainOptions train;
  ReadOptions read;
  bool json = false, add_special = false, skip_special = false;
};

// Documents of files, one after the other.
class Documents {
 public:
  Documents(const std::vector<std::string>& paths, const ReadOptions& options)
      : sources_(find_sources(real_files(), paths)), options_(options) {}

  bool next(std::string& text) {
    for (; at_ < sources_.size(); ++at_) {
      if (!reader_) reader_ = open_records(real_files(), sources_[at_], options_);
      RawRecord record;
      while (reader_->next(record)) {
        if (decode_record(sources_[at_], options_, record, text, report_)) return true;
      }
      reader_.reset();
    }
    return false;
  }
  const ReadReport& report() const { return report_; }

 private:
  std::vector<SourceFile> sources_;
  ReadOptions options_;
  std::unique_ptr<RecordReader> reader_;
  std::size_t at_ = 0;
  ReadReport report_;
};

void train(TokenizerArguments a) {
  a.read.separator = unescape(a.separator);
  a.train.special_tokens = a.special;
  for (const std::string& name : {a.bos, a.eos, a.pad}) {
    if (!name.empty() && std::ranges::find(a.train.special_tokens, name) == a.train.special_tokens.end()) {
      a.train.special_tokens.push_back(name);
    }
  }
  a.train.named = {a.bos, a.eos, a.pad};
  if (a.train.threads <= 0) a.train.threads = available_threads();
  Documents documents(a.data, a.read);
  BpeTrainStats stats;
  const Tokenizer tokenizer =
      train_bpe([&](std::string& text) { return documents.next(text); }, a.train, &stats);
  if (stats.documents == 0) {
    fail(ErrorKind::data, "{}: the data set is empty: there is no text to train a tokenizer on",
         a.data.front());
  }
  tokenizer.save(real_files(), a.output);
  for (const std::string& line : documents.report().lines())
    std::fprintf(stderr, "warning: %s\n", line.c_str());
  const double seconds = stats.count_seconds + stats.merge_seconds;
  if (a.json) {
    const Json json = Json::object({{"output", a.output},
                                    {"vocab_size", static_cast<std::int64_t>(tokenizer.vocab_size())},
                                    {"merges", stats.merges},
                                    {"documents", stats.documents},
                                    {"bytes", stats.bytes},
                                    {"fingerprint", tokenizer.fingerprint()},
                                    {"time_seconds", seconds}});
    std::printf("%s\n", json.dump(2).c_str());
  } else {
    std::printf("%s: %d tokens, %lld merges from %lld documents (%s) in %.2f s\n", a.output.c_str(),
                tokenizer.vocab_size(), static_cast<long long>(stats.merges),
                static_cast<long long>(stats.documents),
                format_bytes(static_cast<std::uint64_t>(stats.bytes)).c_str(), seconds);
  }
  if (static_cast<std::int64_t>(tokenizer.vocab_size()) < a.train.vocab_size) {
    std::fprintf(stderr, "warning: the text has no more pairs to merge: %d tokens instead of %lld\n",
                 tokenizer.vocab_size(), static_cast<long long>(a.train.vocab_size));
  }
}

std::string argument_or_stdin(const std::string& text, bool given) {
  if (given) return text;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void encode(const TokenizerArguments& a, bool text_given) {
  const Tokenizer tokenizer = Tokenizer::load(real_files(), a.path);
  const auto ids =
      tokenizer.encode(argument_or_stdin(a.text, text_given), {.add_special_tokens = a.add_special});
  std::string out;
  for (const std::int32_t id : ids) out += format("{}{}", out.empty() ? "" : " ", id);
  if (a.json) {
    Json list = Json::array(), tokens = Json::array();
    for (const std::int32_t id : ids) {
      list.push_back(id);
      tokens.push_back(tokenizer.token(id));
    }
    out = Json::object({{"ids", list}, {"tokens", tokens}}).dump();
  }
  std::printf("%s\n", out.c_str());
}

std::vector<std::int32_t> ids_of_stdin() {
  std::vector<std::int32_t> ids(std::istream_iterator<std::int32_t>(std::cin), {});
  if (std::cin.eof()) return ids;
  std::cin.clear();
  std::string word;
  std::cin >> word;
  fail(ErrorKind::usage, "standard input: expected ids, found '{}'", word);
}

void decode(const TokenizerArguments& a) {
  const Tokenizer tokenizer = Tokenizer::load(real_files(), a.path);
  const std::vector<std::int32_t> ids = a.ids.empty() ? ids_of_stdin() : a.ids;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      fail(ErrorKind::usage, "id {}: {} has ids from 0 to {}", id, a.path, tokenizer.vocab_size() - 1);
    }
  }
  const std::string text = tokenizer.decode(ids, a.skip_special);
  std::printf("%s\n", a.json ? Json::object({{"text", text}}).dump().c_str() : text.c_str());
}

void add_train(CLI::App& verb, const std::shared_ptr<TokenizerArguments>& a) {
  CLI::App* command = verb.add_subcommand("train", "Train a byte-level BPE vocabulary");
  command->add_option("data", a->data, "files, folders or globs (.txt .md .json .jsonl, also .gz .zst)")
      ->required();
  command->add_option("--output,-o", a->output, "folder for tokenizer.json")->required();
  command->add_option("--vocab-size", a->train.vocab_size, "special tokens and the 256 bytes included")
      ->capture_default_str();
  std::vector<std::string> names;
  for (const std::string_view name : pre_tokenizer_names()) names.emplace_back(name);
  command->add_option("--pre-tokenizer", a->train.pre_tokenizer, "how text is cut into words")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command->add_option("--special", a->special, "special tokens, in the order of their ids");
  command->add_option("--bos", a->bos, "token that begins a text");
  a->eos = "<|endoftext|>";
  command->add_option("--eos", a->eos, "token that ends a document")->capture_default_str();
  command->add_option("--pad", a->pad, "token for padding");
  command->add_option("--min-frequency", a->train.min_frequency, "pairs seen less often are not merged");
  command->add_option("--separator", a->separator,
                      "text between two documents of a text file; \\n is a line break");
  command->add_option("--text-column", a->read.text_column, "of JSON records")->capture_default_str();
  a->train.threads = 0;
  command->add_option("--threads", a->train.threads, "threads; 0: every core")->check(CLI::Range(0, 4096));
  command->add_flag("--json", a->json, "print JSON");
  command->callback([a] { train(*a); });
}

}  // namespace

void add_tokenizer_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("tokenizer", "Train a tokenizer, and use one");
  verb->require_subcommand(1);
  const auto a = std::make_shared<TokenizerArguments>();
  add_train(*verb, a);
  const auto add = [&](const char* name, const char* doc) {
    CLI::App* command = verb->add_subcommand(name, doc);
    command->add_option("tokenizer", a->path, "a tokenizer.json, or a folder with one")->required();
    command->add_flag("--json", a->json, "print JSON");
    return command;
  };
  CLI::App* encode_command = add("encode", "Text to ids");
  encode_command->add_option("text", a->text, "the text; standard input when not given");
  encode_command->add_flag("--add-special-tokens", a->add_special, "apply the tokenizer's template");
  encode_command->callback([a, encode_command] { encode(*a, encode_command->count("text") > 0); });
  CLI::App* decode_command = add("decode", "Ids to text");
  decode_command->add_option("ids", a->ids, "the ids; standard input when not given");
  decode_command->add_flag("--skip-special-tokens", a->skip_special, "leave special tokens out");
  decode_command->callback([a] { decode(*a); });
}

}  // namespace lode
