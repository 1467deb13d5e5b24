// Masks against what the messages say, from the record to the batch.
#include "data/encode_chat.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "data/data_sets.h"
#include "data/inspect.h"
#include "data/loader.h"
#include "data_testing.h"
#include "text/builtin_templates.h"
#include "text/small_tokenizer.h"
#include "text/tokenizer_offsets.h"

namespace lode {
namespace {

Tokenizer chat_tokenizer() {
  const Json config = Json::object({{"eos_token", "<|end|>"}});
  return load_document(small_document(), config).add_special_tokens({"<|im_start|>", "<|im_end|>"});
}

ChatTemplate chatml(const Tokenizer& tokenizer) {
  return ChatTemplate::parse(std::string(find_builtin_template("chatml").source), "chatml",
                             tokenizer.named_tokens());
}

std::shared_ptr<const ChatEncoder> make_encoder(ChatEncodeOptions options = {}) {
  const Tokenizer tokenizer = chat_tokenizer();
  return std::make_shared<const ChatEncoder>(tokenizer, chatml(tokenizer), std::move(options));
}

ChatRow row_of(std::string_view record) {
  ChatRow row;
  EXPECT_FALSE(read_chat_row(parse_json(record, "test"), {}, row));
  return row;
}

// The text of each stretch of tokens of one weight, with that weight unless it is 0 ("-") or 1 ("+").
std::string stretches(const ChatEncoder& encoder, const EncodedRecord& record) {
  std::string out;
  for (std::size_t i = 0; i < record.tokens.size();) {
    std::size_t end = i;
    while (end < record.tokens.size() && record.weights[end] == record.weights[i]) ++end;
    const float weight = record.weights[i];
    const std::span<const std::int32_t> tokens(record.tokens.data() + i, end - i);
    out += (weight == 0   ? "-"
            : weight == 1 ? "+"
                          : format("{}", weight)) +
           "[" + encoder.tokenizer().decode(tokens) + "]";
    i = end;
  }
  return out;
}

std::string encoded(std::string_view record, ChatEncodeOptions options = {}) {
  const auto encoder = make_encoder(std::move(options));
  return stretches(*encoder, encoder->encode(row_of(record)));
}

constexpr std::string_view kTwoTurns =
    R"({"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"hello"},)"
    R"({"role":"user","content":"q2"},{"role":"assistant","content":"world"}]})";

TEST(EncodeChat, AnswersAndTheirEndsAreTargets) {
  EXPECT_EQ(encoded(kTwoTurns),
            "-[<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n]+[hello<|im_end|>]"
            "-[\n<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n]+[world<|im_end|>]-[\n]");
}

TEST(EncodeChat, OptionsChangeTheMask) {
  EXPECT_EQ(encoded(kTwoTurns, {.mask_history = true}),
            "-[<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>"
            "\n<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n]+[world<|im_end|>]-[\n]");
  EXPECT_EQ(encoded(kTwoTurns, {.train_on_prompt = true}).substr(0, 2), "+[");
  EXPECT_EQ(encoded(kTwoTurns, {.train_on_prompt = true}).find("-["), std::string::npos);
  EXPECT_EQ(encoded(R"({"instruction":"q","output":"a"})", {.default_system = "sys"}),
            "-[<|im_start|>system\nsys<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n]"
            "+[a<|im_end|>]-[\n]");
  EXPECT_EQ(
      encoded(R"({"instruction":"q","output":"a","system":"own"})", {.default_system = "sys"}).find("sys\n"),
      std::string::npos);
  EXPECT_EQ(encoded(R"({"instruction":"q","output":"a","history":[["x","y"]]})",
                    {.default_system = "sys", .mask_history = true}),
            "-[<|im_start|>system\nsys<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny<|"
            "im_end|>\n"
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n]+[a<|im_end|>]-[\n]");
  expect_contains(
      error_of(ErrorKind::usage, [] { make_encoder({.train_on_prompt = true, .mask_history = true}); }),
      "train_on_prompt and mask_history contradict each other");
}

TEST(EncodeChat, MessagesStateTheirWeights) {
  EXPECT_EQ(
      encoded(
          R"({"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"hello","weight":0.5},)"
          R"({"role":"user","content":"q2"},{"role":"assistant","content":"world","train":false}]})",
          {.default_system = "s"}),
      "-[<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n]"
      "0.5[hello<|im_end|>]"
      "-[\n<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\nworld<|im_end|>\n]");
}

TEST(EncodeChat, CompletionsAndText) {
  EXPECT_EQ(encoded(R"({"prompt":"hello","completion":" world"})"), "-[hello]+[ world<|end|>]");
  EXPECT_EQ(encoded(R"({"prompt":"hello","completion":" world"})", {.train_on_prompt = true}),
            "+[hello world<|end|>]");
  // A token over the border begins in the prompt and is no target: "hel" + "lo" is one token.
  EXPECT_EQ(encoded(R"({"prompt":"hel","completion":"lo world"})"), "-[hello]+[ world<|end|>]");
  EXPECT_EQ(encoded(R"({"text":"hello"})"), "+[hello<|end|>]");
  const Tokenizer tokenizer = chat_tokenizer();
  const ChatEncoder bare(tokenizer, std::nullopt, {});
  EXPECT_EQ(bare.encode(row_of(R"({"text":"hello"})")).tokens.size(), 2u);
  const std::string error = error_of(ErrorKind::usage, [&] { bare.encode(row_of(kTwoTurns)); });
  expect_contains(error, "name one with template: alpaca, chatml");
}

TEST(EncodeChat, FingerprintsCoverWhatChangesTokens) {
  const Tokenizer tokenizer = chat_tokenizer();
  const std::string base = make_encoder()->fingerprint();
  EXPECT_EQ(base, make_encoder()->fingerprint());
  EXPECT_NE(base, make_encoder({.default_system = "s"})->fingerprint());
  EXPECT_NE(base, make_encoder({.train_on_prompt = true})->fingerprint());
  EXPECT_NE(base, make_encoder({.mask_history = true})->fingerprint());
  EXPECT_NE(base, make_encoder({.variables = Json::object({{"x", 1}})})->fingerprint());
  EXPECT_NE(base, ChatEncoder(tokenizer, std::nullopt, {}).fingerprint());
  EXPECT_NE(base, ChatEncoder(tokenizer.add_tokens({"new"}), chatml(tokenizer), {}).fingerprint());
}

// Every cut of a text gives the tokens of the whole text, and the token that begins there.
TEST(TokenizerOffsets, EveryCutOfAText) {
  Json composed = small_document();
  composed["normalizer"] = Json::object({{"type", "NFC"}});
  Json prefixed = small_document();
  prefixed["pre_tokenizer"] = sequence({split(kLlama3Expression), byte_level(true, false)});
  for (const Json& document : {small_document(), composed, prefixed}) {
    const Tokenizer tokenizer = load_document(document);
    for (const std::string text : {"hello<|end|> world  hello<x>", "", "<|end|><|end|>",
                                   "e\xcc\x81llo \xe4\xbd\xa0 123hello", "\n\n hello"}) {
      std::vector<std::size_t> cuts(text.size() + 1);
      std::iota(cuts.begin(), cuts.end(), 0u);
      std::erase_if(cuts, [&](std::size_t i) { return i < text.size() && (text[i] & 0xc0) == 0x80; });
      const CutTokens found = encode_with_cuts(tokenizer, text, cuts);
      ASSERT_EQ(found.ids, tokenizer.encode(text));
      ASSERT_EQ(found.cuts.size(), cuts.size());
      EXPECT_EQ(found.cuts.front(), 0u);
      EXPECT_EQ(found.cuts.back(), found.ids.size());
      EXPECT_TRUE(std::ranges::is_sorted(found.cuts));
      if (document != small_document()) continue;
      std::size_t begin = 0;  // byte level without changes: offsets are sums of token lengths
      std::vector<std::size_t> begins;
      for (const std::int32_t id : found.ids) {
        begins.push_back(begin);
        begin += tokenizer.token_bytes(id).size();
      }
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        const auto expected = std::ranges::lower_bound(begins, cuts[i]) - begins.begin();
        EXPECT_EQ(found.cuts[i], static_cast<std::size_t>(expected)) << text << " at " << cuts[i];
      }
    }
  }
}

TEST(TokenizerOffsets, CharactersThatTheNormalizerRewrites) {
  Json document = small_document();
  Json vocab = Json::object({{"<unk>", 0}});
  for (int b = 0; b < 256; b++) vocab[format("<0x{:02X}>", b)] = b + 1;
  int id = 257;
  for (const char* token : {"\u2581", "h", "i", "hi", "\u2581hi"}) vocab[token] = id++;
  document["model"]["vocab"] = std::move(vocab);
  document["model"]["merges"] = Json::array();
  for (const char* merge : {"h i", "\u2581 hi"}) document["model"]["merges"].push_back(merge);
  document["model"]["byte_fallback"] = true;
  document["model"]["ignore_merges"] = false;
  document["model"]["unk_token"] = "<unk>";
  document["added_tokens"] = Json(Json::Array{added_token(262, "<|end|>", true)});
  document["normalizer"] = Json::object(
      {{"type", "Replace"}, {"pattern", Json::object({{"String", " "}})}, {"content", "\u2581"}});
  document["pre_tokenizer"] = nullptr;
  document["decoder"] = nullptr;
  const Tokenizer tokenizer = load_document(document);
  const std::string text = "hi hi<|end|>\u4f60hi";
  const std::vector<std::size_t> cuts = {0, 2, 3, 5, 12, 15, 17};
  const CutTokens found = encode_with_cuts(tokenizer, text, cuts);
  ASSERT_EQ(found.ids, tokenizer.encode(text));  // hi, _hi, end, three bytes, hi
  ASSERT_EQ(found.ids.size(), 7u);
  EXPECT_EQ(found.cuts, (std::vector<std::size_t>{0, 1, 2, 2, 3, 6, 7}));
}

class ChatData : public testing::Test {
 protected:
  std::shared_ptr<const PreparedData> prepare(std::string_view text, std::string_view name = "a.jsonl",
                                              BadRecords bad = BadRecords::fail,
                                              ChatEncodeOptions options = {}) {
    const std::string path = folder_ / std::string(name);
    put_file(path, text);
    PrepareOptions prepare;
    prepare.cache = folder_ / "cache";
    prepare.read.bad_records = bad;
    encoder_ = make_encoder(std::move(options));
    return prepare_data(real_files(), find_sources(real_files(), {path}, true),
                        chat_text_encoder(encoder_, {}, bad), prepare);
  }
  static std::string lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      const Json message = Json::object({{"role", "user"}, {"content", std::string(1 + i * 7 % 23, 'q')}});
      const Json answer = Json::object({{"role", "assistant"},
                                        {"content", "answer " + std::to_string(i)},
                                        {"weight", i % 3 == 0 ? 0.25 : 1.0}});
      text += Json::object({{"messages", Json(Json::Array{message, answer})}}).dump() + "\n";
    }
    return text;
  }
  // Every target of some steps as (sample, label, weight), sorted.
  using Target = std::tuple<std::int64_t, std::int32_t, std::int32_t, float>;
  static std::vector<Target> targets_of(const std::vector<Step>& steps) {
    std::vector<Target> targets;
    for (const Step& step : steps) {
      for (const Batch& batch : step.micro_batches) {
        for (const Segment& segment : batch.segments().list()) {
          for (std::int32_t t = segment.begin; t < segment.begin + segment.length; ++t) {
            const auto i = static_cast<std::size_t>(t);
            EXPECT_EQ(batch.labels()[i] == kIgnoreLabel, batch.loss_weight()[i] == 0);
            if (batch.labels()[i] == kIgnoreLabel) continue;
            EXPECT_EQ(batch.labels()[i], batch.tokens()[i + 1]);
            targets.emplace_back(segment.sample, t - segment.begin, batch.labels()[i],
                                 batch.loss_weight()[i]);
          }
        }
      }
    }
    std::ranges::sort(targets);
    return targets;
  }
  static std::vector<Step> steps_of(const std::shared_ptr<const PreparedData>& data, Packing packing,
                                    std::int64_t rows, std::int64_t micro_batches) {
    RowOptions options;
    options.packing = packing;
    options.cutoff_len = 128;
    const StepLoader loader(std::make_shared<const Rows>(make_rows(data, options).train),
                            {1, rows, micro_batches});
    std::vector<Step> steps;
    for (std::int64_t s = 0; s < loader.num_steps_per_epoch(); ++s) steps.push_back(loader.make_step(s));
    return steps;
  }

  TempFolder folder_;
  std::shared_ptr<const ChatEncoder> encoder_;
};

TEST_F(ChatData, BatchesHoldTheAnswers) {
  const auto data = prepare(lines(20));
  EXPECT_TRUE(data->has_weights());
  EXPECT_EQ(data->origin_of(3), (folder_ / "a.jsonl") + ":4");
  std::map<std::int64_t, std::vector<std::int32_t>> answers;
  for (const auto& [sample, at, label, weight] : targets_of(steps_of(data, Packing::none, 4, 1))) {
    EXPECT_EQ(weight, sample % 3 == 0 ? 0.25f : 1.0f);
    answers[sample].push_back(label);
  }
  ASSERT_EQ(answers.size(), 20u);
  for (const auto& [sample, tokens] : answers) {
    EXPECT_EQ(encoder_->tokenizer().decode(tokens), "answer " + std::to_string(sample) + "<|im_end|>");
  }
}

TEST_F(ChatData, PackingAndSplitsKeepTheTargets) {
  const auto data = prepare(lines(37));
  const auto expected = targets_of(steps_of(data, Packing::none, 37, 1));
  EXPECT_EQ(targets_of(steps_of(data, Packing::best_fit, 2, 2)), expected);
  EXPECT_EQ(targets_of(steps_of(data, Packing::none, 5, 3)), expected);
  const auto whole = steps_of(data, Packing::none, 8, 1), parts = steps_of(data, Packing::none, 2, 4);
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t s = 0; s < whole.size(); ++s) {
    EXPECT_EQ(targets_of({whole[s]}), targets_of({parts[s]}));
    EXPECT_EQ(whole[s].num_targets, parts[s].num_targets);
    EXPECT_EQ(whole[s].sample_ids, parts[s].sample_ids);
  }
}

TEST_F(ChatData, TheCacheKeepsWeightsAndOrigins) {
  const auto first = prepare(lines(10)), second = prepare(lines(10));
  EXPECT_EQ(second->report().shards_made, 0);
  EXPECT_EQ(second->report().shards_reused, 1);
  EXPECT_EQ(second->fingerprint(), first->fingerprint());
  std::vector<float> a(static_cast<std::size_t>(first->num_tokens())), b(a.size());
  first->copy_weights(0, first->num_tokens(), a.data());
  second->copy_weights(0, second->num_tokens(), b.data());
  EXPECT_EQ(a, b);
  const auto other = prepare(lines(10), "a.jsonl", BadRecords::fail, {.mask_history = true});
  EXPECT_EQ(other->report().shards_made, 1);
  EXPECT_NE(other->fingerprint(), first->fingerprint());
}

TEST_F(ChatData, BadRowsFailOrAreCounted) {
  const std::string text =
      std::string(kTwoTurns) + "\n" + R"({"messages":[{"role":"usr","content":"x"}]})" + "\n" +
      R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","train":false}]})" +
      "\n{broken\n";
  const std::string error = error_of(ErrorKind::data, [&] { prepare(text); });
  expect_contains(error, "a.jsonl:2: messages[0].role: unknown role \"usr\"");
  expect_contains(error, "correct the record or choose to skip bad records");
  const auto data = prepare(text, "b.jsonl", BadRecords::skip);
  const ReadReport& read = data->report().read;
  EXPECT_EQ(data->num_documents(), 1);
  EXPECT_EQ(read.bad.at("unknown role"), 1);
  EXPECT_EQ(read.bad.at("broken JSON"), 1);
  EXPECT_EQ(read.dropped.at("no target"), 1);
  ASSERT_EQ(read.dropped_examples.size(), 1u);
  EXPECT_EQ(read.dropped_examples[0], (folder_ / "b.jsonl") + ":3: no target");
  EXPECT_EQ(ReadReport::from_json(read.to_json()).to_json(), read.to_json());
  expect_contains(
      error_of(
          ErrorKind::data,
          [&] {
            prepare(
                R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","weight":0}]})",
                "c.jsonl");
          }),
      "1 dropped: no target");
}

TEST_F(ChatData, CsvAndArrays) {
  const auto csv = prepare("instruction,output\nq,\"a,\nb\"\n", "a.csv");
  EXPECT_EQ(csv->num_documents(), 1);
  EXPECT_EQ(csv->origin_of(0), (folder_ / "a.csv") + ":2");
  const auto array = prepare(R"([{"instruction":"q","output":"a,\nb"}])", "a.json");
  std::vector<std::int32_t> a(static_cast<std::size_t>(csv->num_tokens())),
      b(static_cast<std::size_t>(array->num_tokens()));
  csv->copy(0, csv->num_tokens(), a.data());
  array->copy(0, array->num_tokens(), b.data());
  EXPECT_EQ(a, b);
}

// "<|im_end|>" that a user types is the end token for the model: such rows are kept, counted and named.
TEST_F(ChatData, SpecialTokensInTheTextOfMessagesAreCounted) {
  const std::string plain = R"({"instruction":"what is <|im_en|> or < | im_end | >?","output":"a"})",
                    user = R"({"instruction":"what is <|im_end|>?","output":"a"})",
                    answer = R"({"instruction":"q","output":"it is <|im_start|><|im_end|>"})",
                    template_free = R"({"prompt":"<|im_start|>p","completion":"c"})";
  const auto data = prepare(plain + "\n" + user + "\n" + answer + "\n" + template_free + "\n");
  const DataSummary summary = summarize(make_rows(data, {}).train, encoder_->tokenizer());
  EXPECT_EQ(summary.samples, 4);
  EXPECT_EQ(summary.odd,
            (std::map<std::string, std::int64_t>{{"special tokens in the text of a message", 2}}));
  EXPECT_EQ(
      summary.odd_examples,
      (std::vector<std::string>{(folder_ / "a.jsonl") + ":2: message 1 (user): \"<|im_end|>\"",
                                (folder_ / "a.jsonl") + ":3: message 2 (assistant): \"<|im_start|>\""}));
  const std::vector<std::string> lines = summary.lines();
  EXPECT_NE(std::ranges::find(lines, "2 rows kept with special tokens in the text of a message"),
            lines.end());
  EXPECT_EQ(summary.to_json().at("odd").size(), 1u);
  EXPECT_EQ(data->report().read.lines().front(),
            "2 records kept with special tokens in the text of a message");
  // From the cache they are known as well.
  EXPECT_EQ(prepare(plain + "\n" + user + "\n" + answer + "\n" + template_free + "\n")->report().read.odd,
            summary.odd);
}

TEST_F(ChatData, CutoffDropsWhatHasNoTargetLeft) {
  const auto data =
      prepare(std::string(R"({"instruction":"q","output":"a"})") + "\n" +
              Json::object({{"instruction", std::string(100, 'q')}, {"output", "a"}}).dump() + "\n");
  RowOptions options;
  options.cutoff_len = 60;
  const Rows rows = make_rows(data, options).train;
  EXPECT_EQ(rows.report().samples, 1);
  EXPECT_EQ(rows.report().dropped.at("no target within cutoff_len"), 1);
  EXPECT_EQ(rows.report().dropped_examples.at(0), (folder_ / "a.jsonl") + ":2: no target within cutoff_len");
  EXPECT_EQ(rows.report().targets, 2);  // "a" and its end
  options.too_long = TooLong::split;
  expect_contains(error_of(ErrorKind::usage, [&] { make_rows(data, options); }), "chats cannot be cut");
}

TEST_F(ChatData, MixturesKeepTheirSetsAndHeldOutRowsApart) {
  const auto a = prepare(lines(12)), b = prepare(lines(4), "b.jsonl");
  const auto joined = PreparedData::join({{"a", a}, {"b", b}});
  EXPECT_EQ(joined->num_documents(), 16);
  EXPECT_EQ(joined->set_of(11), 0);
  EXPECT_EQ(joined->set_of(12), 1);
  EXPECT_EQ(joined->origin_of(12), (folder_ / "b.jsonl") + ":1");
  RowOptions options;
  options.packing = Packing::none;
  options.mix = {Mixing::interleave_over, {}};
  const RowSets sets = make_rows(joined, options, 3, 5);
  std::set<std::int64_t> held_out, trained;
  for (const Sample& sample : sets.held_out.all_samples()) held_out.insert(sample.document);
  for (const Sample& sample : sets.train.all_samples()) {
    trained.insert(sample.document);
    EXPECT_EQ(sample.set, joined->set_of(sample.document));
  }
  EXPECT_EQ(held_out.size(), 3u);
  EXPECT_EQ(trained.size(), 13u);
  for (const std::int64_t document : held_out) EXPECT_FALSE(trained.contains(document));
  options = {};
  options.max_documents = 5;
  options.set_limits = {0, 2};
  EXPECT_EQ(make_rows(joined, options).train.report().documents, 7);
  options.packing = Packing::best_fit;
  EXPECT_EQ(summarize(make_rows(joined, options).train, encoder_->tokenizer()).sets.at(1).samples, 2);
}

TEST_F(ChatData, Inspection) {
  const auto data =
      prepare(lines(5) + R"({"prompt":"p","completion":"hello"})" + "\n" + R"({"text":"caf\u00e9"})");
  RowOptions options;
  const Rows rows = make_rows(data, options).train;
  const DataSummary summary = summarize(rows, encoder_->tokenizer());
  EXPECT_EQ(summary.documents, 7);
  EXPECT_EQ(summary.samples, 7);
  EXPECT_EQ(std::accumulate(summary.histogram.begin(), summary.histogram.end(), std::int64_t{0}), 7);
  EXPECT_EQ(summary.targets, rows.report().targets);
  EXPECT_GT(summary.share_trained, 0);
  EXPECT_NEAR(summary.share_ends, 2.0 / 7, 1e-9);  // <|im_end|> is no stop token of this tokenizer
  ASSERT_EQ(summary.special_tokens.size(), 3u);
  EXPECT_EQ(summary.special_tokens[1].text, "<|im_start|>");
  EXPECT_EQ(summary.special_tokens[1].count, 10);
  EXPECT_LE(summary.shortest, summary.median);
  EXPECT_LE(summary.median, summary.p95);
  EXPECT_LE(summary.p95, summary.longest);
  const auto samples = inspect_samples(rows, encoder_->tokenizer(), 100);
  ASSERT_EQ(samples.size(), 7u);
  EXPECT_EQ(render_sample(samples[5], false),
            (folder_ / "a.jsonl") + ":6: 3 tokens, 2 trained\np\u00abhello<|end|>\u00bb\n");
  const std::string coloured = render_sample(samples[0], true);
  expect_contains(coloured, "\x1b[33manswer 0<|im_end|>\x1b[90m");
  expect_contains(coloured, "user\u23ce\nq");
  expect_contains(render_sample(samples[6], false), "\u00e9<|end|>");
  EXPECT_EQ(inspect_samples(rows, encoder_->tokenizer(), 2).size(), 2u);
  EXPECT_EQ(summary.to_json().at("documents").as_int(), 7);
  expect_contains(summary.lines().front(), "7 documents");
}

}  // namespace
}  // namespace lode
