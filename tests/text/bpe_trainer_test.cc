#include "text/bpe_trainer.h"

#include <gtest/gtest.h>
#include <stdio.h>

#include "core/format.h"
#include "lode/error.h"
#include "text/small_tokenizer.h"

namespace lode {
namespace {

std::uint32_t fnv(std::string_view data, std::uint32_t value = 0x811C9DC5u) {
  for (const char c : data) value = (value ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return value;
}

std::string hex(std::uint32_t value) {
  return format("{:08x}", value);
}

DocumentSource from_list(std::vector<std::string> documents) {
  return [documents = std::move(documents), i = std::size_t{0}](std::string& out) mutable {
    if (i == documents.size()) return false;
    out = documents[i++];
    return true;
  };
}

Json fixture(const char* name) {
  const std::string path = std::string(LODE_TEST_DIR) + "/text/fixtures/" + name;
  return parse_json(real_files().read(path), path);
}

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.as_array()) out.push_back(item.as_string());
  return out;
}

Json saved(const Tokenizer& tokenizer) {
  const TempFolder folder;
  tokenizer.save(real_files(), folder.path());
  return parse_json(real_files().read(folder / "tokenizer.json"), "tokenizer.json");
}

std::string model_hash(const Json& document) {
  std::string text;
  for (const auto& [token, id] : document.at("model").at("vocab").as_object()) text += token + "\n";
  for (const Json& merge : document.at("model").at("merges").as_array()) {
    text += merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string() + "\n";
  }
  return hex(fnv(text));
}

bool flag(const Json& variant, std::string_view key) {
  const Json* value = variant.find(key);
  return value != nullptr && value->as_bool();
}

Tokenizer apply_variant(Json document, const Json& variant, const Json& added) {
  if (flag(variant, "nfc")) document["normalizer"] = Json::object({{"type", "NFC"}});
  if (flag(variant, "digits")) {
    document["pre_tokenizer"] =
        sequence({Json::object({{"type", "Digits"}, {"individual_digits", true}}), byte_level(true, true)});
  }
  document["model"]["ignore_merges"] = flag(variant, "ignore_merges");
  const Json vocab = document.at("model").at("vocab");
  auto next = static_cast<std::int64_t>(vocab.size());
  for (const Json& fields : added.as_array()) {
    if (!flag(variant, "added")) break;
    const Json* known = vocab.find(fields.at("content").as_string());
    Json token = Json::object({{"id", known != nullptr ? *known : Json(next++)}});
    for (const auto& [key, value] : fields.as_object()) token[key] = value;
    document["added_tokens"].push_back(std::move(token));
  }
  return load_document(document);
}

std::string text_hash(const Tokenizer& tokenizer, const std::string& text) {
  std::uint32_t value = fnv("");
  for (const bool parse_special : {true, false}) {
    const auto ids = tokenizer.encode(text, {.parse_special = parse_special});
    value = fnv({reinterpret_cast<const char*>(ids.data()), ids.size() * 4}, value);
    value = fnv(tokenizer.decode(ids, !parse_special), value);
  }
  return hex(value);
}

// Training and encoding of hostile text, against hashes made with the tokenizers package.
TEST(BpeTrainer, ConformsOnHostileText) {
  const Json data = fixture("conformance.json");
  const std::vector<std::string> texts = strings(data.at("texts"));
  for (const Json& variant : data.at("variants").as_array()) {
    BpeTrainOptions options{.vocab_size = data.at("vocab_size").as_int(),
                            .pre_tokenizer = variant.at("pre").as_string(),
                            .special_tokens = strings(data.at("special"))};
    const Json document = saved(train_bpe(from_list(texts), options));
    EXPECT_EQ(model_hash(document), variant.at("model").as_string());
    const Tokenizer tokenizer = apply_variant(document, variant, data.at("added"));
    std::string_view hashes = variant.at("hashes").as_string();
    for (const std::string& text : texts) {
      EXPECT_EQ(text_hash(tokenizer, text), hashes.substr(0, 8)) << variant.dump().substr(0, 60) << "\n"
                                                                 << text;
      hashes.remove_prefix(std::min<std::size_t>(9, hashes.size()));
    }
  }
}

std::string command_output(const char* command) {
  std::string out;
  FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return out;
  char buffer[1 << 16];
  for (std::size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
  pclose(pipe);
  return out;
}

TEST(BpeTrainer, ConformsOnTheDemoText) {
  const Json data = fixture("demo_text.json");
  const std::string text = command_output("bible -f gen1:1-rev22:21 2>/dev/null");
  if (hex(fnv(text)) != data.at("text").as_string()) {
    std::printf("not run: asset missing (the output of bible-kjv)\n");
    return;
  }
  for (const Json& trained : data.at("trained").as_array()) {
    BpeTrainOptions options{.vocab_size = trained.at("vocab_size").as_int(),
                            .pre_tokenizer = trained.at("pre").as_string(),
                            .special_tokens = strings(data.at("special")),
                            .threads = 2};
    BpeTrainStats stats;
    const Tokenizer tokenizer = train_bpe(from_list({text}), options, &stats);
    EXPECT_EQ(stats.merges, trained.at("merges").as_int());
    EXPECT_EQ(stats.bytes, data.at("bytes").as_int());
    EXPECT_EQ(model_hash(saved(tokenizer)), trained.at("model").as_string());
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(BpeTrainer, CountsByHand) {
  BpeTrainOptions options{.vocab_size = 260, .special_tokens = {"<s>"}, .named = {.eos = "<s>"}};
  BpeTrainStats stats;
  const Tokenizer tokenizer = train_bpe(from_list({"abab ab", "", "b"}), options, &stats);
  EXPECT_EQ(stats.documents, 3);
  EXPECT_EQ(stats.bytes, 8);
  EXPECT_EQ(stats.words, 3);
  EXPECT_EQ(stats.distinct_words, 3);
  EXPECT_EQ(stats.merges, 3);
  EXPECT_EQ(tokenizer.eos_id(), 0);
  EXPECT_EQ(tokenizer.token(257), "ab");
  EXPECT_EQ(tokenizer.token(258), "Ġab");  // equal counts: the smaller pair of ids, (Ġ, ab) before (ab, ab)
  EXPECT_EQ(tokenizer.token(259), "abab");
  EXPECT_EQ(tokenizer.encode("abab ab<s>"), (std::vector<std::int32_t>{259, 258, 0}));
}

TEST(BpeTrainer, StopsWhenNothingIsLeft) {
  BpeTrainOptions options{.vocab_size = 1000};
  EXPECT_EQ(train_bpe(from_list({}), options).vocab_size(), 256);
  EXPECT_EQ(train_bpe(from_list({"a"}), options).vocab_size(), 256);
  EXPECT_EQ(train_bpe(from_list({"ab"}), options).vocab_size(), 257);
  options.min_frequency = 2;
  EXPECT_EQ(train_bpe(from_list({"ab"}), options).vocab_size(), 256);
  EXPECT_EQ(train_bpe(from_list({"ab ab"}), options).vocab_size(), 257);
}

TEST(BpeTrainer, ThreadsAndDocumentsDoNotMatter) {
  std::string text;
  std::vector<std::string> lines;
  std::uint32_t state = 1;
  while (text.size() < 700'000) {
    std::string line;
    for (int i = 0; i < 12; i++) {
      state = state * 1664525 + 1013904223;
      line += " w" + std::to_string(state >> 22) + (state >> 31 ? "'s" : "\u00e9x");
    }
    lines.push_back(line + "\n");
    text += lines.back();
  }
  for (const std::string_view pre : pre_tokenizer_names()) {
    BpeTrainOptions options{.vocab_size = 500, .pre_tokenizer = std::string(pre)};
    const std::string one = train_bpe(from_list({text}), options).fingerprint();
    options.threads = 3;
    EXPECT_EQ(train_bpe(from_list({text}), options).fingerprint(), one);
    EXPECT_EQ(train_bpe(from_list(lines), options).fingerprint(), one);
  }
}

TEST(BpeTrainer, RefusesBadOptions) {
  const auto message = [](const BpeTrainOptions& options) -> std::string {
    try {
      train_bpe(from_list({"text"}), options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "no error";
  };
  const auto expect = [&](const BpeTrainOptions& options, std::string_view part) {
    EXPECT_NE(message(options).find(part), std::string::npos) << message(options);
  };
  expect({.vocab_size = 255}, "vocab_size 255 is out of range: 256");
  expect({.vocab_size = 256, .special_tokens = {"<s>"}}, "out of range: 257");
  expect({.vocab_size = std::int64_t{1} << 40}, "out of range");
  expect({.pre_tokenizer = "bert"}, "unknown pre-tokenizer \"bert\": known are gpt2");
  expect({.special_tokens = {"<s>", "<s>"}}, "\"<s>\" is given twice");
  expect({.special_tokens = {""}}, "is empty");
  expect({.special_tokens = {"\xFF"}}, "not UTF-8");
  expect({.named = {.eos = "<s>"}}, "not one of the special tokens");
  expect({.min_frequency = -1}, "min_frequency -1");
  expect({.threads = 0}, "threads 0");
}

TEST(BpeTrainer, TakesHostileDocuments) {
  BpeTrainOptions options{.vocab_size = 270, .threads = 2};
  const std::string big(1 << 20, 'a');
  const Tokenizer tokenizer =
      train_bpe(from_list({big, std::string(1000, '\0'), "\xFF\xFE", "\xE4\xB8"}), options);
  EXPECT_EQ(tokenizer.encode(big).size(), big.size() >> 12);  // two of the 14 merges are of NUL bytes
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(big)), big);
}

}  // namespace
}  // namespace lode
