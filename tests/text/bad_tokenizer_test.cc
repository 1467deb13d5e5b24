#include <gtest/gtest.h>

#include "lode/error.h"
#include "text/small_tokenizer.h"

namespace lode {
namespace {

std::string load_error(const Json& document, const Json& config = Json()) {
  try {
    load_document(document, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    return error.what();
  }
  return "no error";
}

void expect_error(const Json& document, std::string_view part) {
  const std::string message = load_error(document);
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
}

Json typed(const char* type) {
  return Json::object({{"type", type}});
}

TEST(BadTokenizer, MissingFile) {
  const TempFolder folder;
  EXPECT_THROW(Tokenizer::load(real_files(), folder.path()), Error);
  EXPECT_THROW(Tokenizer::load(real_files(), folder / "nothing"), Error);
}

TEST(BadTokenizer, BrokenJson) {
  const TempFolder folder;
  for (const std::string_view text :
       {"", "{", "[]", "null", "{\"model\": 3}", "{\"model\": null}", "{}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}"}) {
    write_file_atomically(real_files(), folder / "tokenizer.json", text);
    try {
      Tokenizer::load(real_files(), folder.path());
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos) << error.what();
    }
  }
}

TEST(BadTokenizer, TruncatedAnywhere) {
  const std::string text = small_document().dump();
  const TempFolder folder;
  for (std::size_t size = 0; size < text.size(); size += 97) {
    write_file_atomically(real_files(), folder / "tokenizer.json", std::string_view(text).substr(0, size));
    EXPECT_THROW(Tokenizer::load(real_files(), folder.path()), Error) << size;
  }
}

TEST(BadTokenizer, ComponentsWeDoNotHave) {
  const auto with = [](const char* key, Json value) {
    Json document = small_document();
    document[key] = std::move(value);
    return document;
  };
  expect_error(with("normalizer", typed("Precompiled")), "normalizer Precompiled is not supported");
  expect_error(with("normalizer", typed("BertNormalizer")), "normalizer BertNormalizer is not supported");
  expect_error(with("pre_tokenizer", typed("UnicodeScripts")),
               "pre_tokenizer UnicodeScripts is not supported");
  expect_error(with("pre_tokenizer", sequence({byte_level(false, true), split("a")})),
               "Split after ByteLevel");
  expect_error(with("pre_tokenizer", sequence({split("a", "Merged"), byte_level(false, false)})),
               "behavior Merged is not supported");
  expect_error(with("post_processor", typed("Other")), "post_processor Other is not supported");
  expect_error(with("post_processor", typed("RobertaProcessing")), "the key \"cls\" is missing");
  expect_error(with("decoder", typed("WordPiece")), "decoder WordPiece is not supported");
  expect_error(with("decoder", typed("Metaspace")), "the key \"replacement\" is missing");
  expect_error(with("model", typed("Unigram")), "model Unigram is not supported");
  expect_error(with("model", typed("WordPiece")), "model WordPiece is not supported");
}

TEST(BadTokenizer, ModelOptionsWeDoNotHave) {
  for (const auto& [key, value] : {std::pair<const char*, Json>{"dropout", 0.1},
                                   {"end_of_word_suffix", "</w>"},
                                   {"continuing_subword_prefix", "##"}}) {
    Json document = small_document();
    document["model"][key] = value;
    expect_error(document, std::string("model.") + key + " is not supported");
  }
}

TEST(BadTokenizer, ExpressionsWeDoNotHave) {
  for (const char* expression : {"(", "[a", "[a[b]]", "[a&&b]", "\\h", "\\bx", "(?m:a)", "(?<n>a)", "a{2}+",
                                 "a{,2}", "\\p{Nonsense}", "\\", "\\xff", "(*VERB)", "[\\W]"}) {
    Json document = small_document();
    document["pre_tokenizer"] = sequence({split(expression), byte_level(false, false)});
    expect_error(document, expression);
  }
}

TEST(BadTokenizer, Vocabulary) {
  const auto with_id = [](Json id) {
    Json document = small_document();
    document["model"]["vocab"]["hel"] = std::move(id);
    return document;
  };
  expect_error(with_id(5), "have the same id, 5");
  expect_error(with_id(-1), "the id of \"hel\" must be an integer from 0");
  expect_error(with_id(std::int64_t{1} << 40), "the id of \"hel\"");
  expect_error(with_id(1.5), "the id of \"hel\"");
  expect_error(with_id("x"), "the id of \"hel\"");
  Json document = small_document();
  document["model"]["vocab"] = Json::array();
  expect_error(document, "model.vocab must be an object");
  document["model"]["vocab"] = Json::object();
  document["model"]["merges"] = Json::array();
  expect_error(document, "model.vocab is empty");
  document = small_document();
  document["model"]["unk_token"] = "<unk>";
  expect_error(document, "unk_token \"<unk>\" is not in model.vocab");
}

TEST(BadTokenizer, Merges) {
  const auto with = [](Json merge) {
    Json document = small_document();
    document["model"]["merges"].push_back(std::move(merge));
    return document;
  };
  expect_error(with("a q"), "\"a\" + \"q\" gives \"aq\", which is not in model.vocab");
  expect_error(with("a qq"), "model.merges[12]: \"qq\" is not in model.vocab");
  for (const char* text : {"", "a", " a", "a ", "a b c"})
    expect_error(with(text), "model.merges[12] must be two tokens");
  expect_error(with(3), "model.merges[12] must be two tokens");
  expect_error(with(Json(Json::Array{Json("a")})), "model.merges[12] must be two tokens");
}

TEST(BadTokenizer, AddedTokens) {
  const auto with = [](Json token) {
    Json document = small_document();
    document["added_tokens"].push_back(std::move(token));
    return document;
  };
  expect_error(with(added_token(300, "<y>", true)),
               "\"<y>\" has id 300 where 271 is expected (the next free id)");
  expect_error(with(added_token(270, "<y>", true)), "has id 270 where 271 is expected");
  expect_error(with(added_token(271, "hel", true)),
               "has id 271 where 268 is expected (its id in model.vocab)");
  expect_error(with(added_token(269, "<|end|>", true)), "the token \"<|end|>\" appears twice");
  expect_error(with(added_token(-1, "<y>", true)), "id -1 is out of range");
  expect_error(with(added_token(271, "", true)), "content is empty");
  expect_error(with(Json("text")), "added_tokens[2] must be an object");
  Json document = small_document();
  document["added_tokens"] = "text";
  expect_error(document, "added_tokens must be an array");
  document = small_document();
  document["added_tokens"].as_array()[0]["special"] = "yes";
  expect_error(document, "\"special\" must be true or false, not string");
}

TEST(BadTokenizer, Template) {
  Json document = small_document();
  Json& processor = document["post_processor"];
  processor = typed("TemplateProcessing");
  expect_error(document, "the key \"single\" is missing");
  processor["single"] = Json::array();
  expect_error(document, "must hold the sequence A once");
  processor["single"].push_back(Json::object({{"SpecialToken", Json::object({{"id", "<s>"}})}}));
  processor["special_tokens"] = Json::object();
  expect_error(document, "the key \"<s>\" is missing");
  processor["special_tokens"]["<s>"]["ids"] = Json(Json::Array{Json(999)});
  expect_error(document, "999 is not the id of a token");
}

TEST(BadTokenizer, Config) {
  const std::string unknown = load_error(small_document(), Json::object({{"eos_token", "</s>"}}));
  EXPECT_NE(unknown.find("the eos_token \"</s>\""), std::string::npos) << unknown;
  const std::string shape = load_error(small_document(), Json::object({{"eos_token", 3}}));
  EXPECT_NE(shape.find("tokenizer_config.json"), std::string::npos) << shape;
  EXPECT_NE(load_error(small_document(), Json::array()).find("must be an object"), std::string::npos);
}

}  // namespace
}  // namespace lode
