// Real vocabularies against the `tokenizers` package: ids and decoded text of hostile texts, as hashes.
#include <gtest/gtest.h>

#include <cstdio>

#include "core/file.h"
#include "core/format.h"
#include "core/json.h"
#include "text/gguf_tokenizer.h"
#include "text/unicode.h"

namespace lode {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::size_t operator()(std::size_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % n;
  }

 private:
  std::uint64_t state_;
};

// The texts of tools/tokenizer_fixtures/make_vocabulary_fixture.py.
class Texts {
 public:
  explicit Texts(const Json& fixture)
      : white_(points(fixture.at("white"))),
        marks_(points(fixture.at("marks"))),
        runs_(fixture.at("runs").as_string()),
        words_(fixture.at("words").as_array()),
        units_(fixture.at("units").as_array()) {
    for (std::size_t at = 0; at < runs_.size();) run_points_.push_back(text::next_code_point(runs_, at));
  }

  std::string make(std::size_t number) const {
    std::string out;
    if (number < units_.size()) {
      for (int i = 0; i < 3000; i++) out += units_[number].as_string();
      return out;
    }
    Random random(number);
    for (std::size_t left = 1 + random(20); left > 0; left--) add_piece(random, out);
    return out;
  }

 private:
  static std::vector<char32_t> points(const Json& list) {
    std::vector<char32_t> out;
    for (const Json& point : list.as_array()) out.push_back(static_cast<char32_t>(point.as_int()));
    return out;
  }
  static void repeat(char32_t c, std::size_t times, std::string& out) {
    for (; times > 0; times--) text::append_code_point(c, out);
  }
  static char32_t choose(const std::vector<char32_t>& from, Random& random) {
    return from[random(from.size())];
  }
  void add_piece(Random& random, std::string& out) const {
    const std::size_t kind = random(8);
    if (kind == 0) {
      const auto c = static_cast<char32_t>(random(0x110000));
      text::append_code_point(c >= 0xD800 && c < 0xE000 ? 0xFFFD : c, out);
    } else if (kind == 1) {
      const char32_t c = choose(white_, random);
      repeat(c, 1 + random(4), out);
    } else if (kind == 2) {
      out.push_back(static_cast<char>('a' + random(26)));
      for (std::size_t n = 1 + random(3); n > 0; n--) repeat(choose(marks_, random), 1, out);
    } else if (kind == 3) {
      const char32_t c = choose(run_points_, random);
      repeat(c, 1 + random(60), out);
    } else if (kind == 4) {
      for (std::size_t n = 1 + random(12); n > 0; n--) out.push_back(static_cast<char>(32 + random(95)));
    } else if (kind == 5) {
      for (std::size_t n = 1 + random(4); n > 0; n--) repeat(static_cast<char32_t>(random(0x3000)), 1, out);
    } else {
      out += words_[random(words_.size())].as_string();
    }
  }

  std::vector<char32_t> white_, marks_, run_points_;
  std::string runs_;
  Json::Array words_, units_;
};

std::uint32_t fnv(std::string_view bytes, std::uint32_t value) {
  for (const char c : bytes) value = (value ^ static_cast<std::uint8_t>(c)) * 0x01000193u;
  return value;
}

std::uint32_t add_ids(const std::vector<std::int32_t>& ids, std::uint32_t value) {
  for (const std::int32_t id : ids) {
    const auto bits = static_cast<std::uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) {
      value = (value ^ (bits >> shift & 0xFF)) * 0x01000193u;
    }
  }
  return value;
}

std::uint32_t add_text(const Tokenizer& tokenizer, std::string_view text, std::uint32_t value) {
  for (const bool ignore_special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.parse_special = !ignore_special});
    value = fnv(tokenizer.decode(ids, ignore_special), add_ids(ids, value));
  }
  return add_ids(tokenizer.encode(text, {.add_special_tokens = true, .parse_special = false}), value);
}

std::string group_hashes(const Tokenizer& tokenizer, const Json& fixture, const Texts& texts) {
  const auto count = static_cast<std::size_t>(fixture.at("texts").as_int());
  const auto group = static_cast<std::size_t>(fixture.at("group").as_int());
  std::string out;
  for (std::size_t begin = 0; begin < count; begin += group) {
    std::uint32_t value = 0x811C9DC5;
    for (std::size_t i = begin; i < begin + group; i++) value = add_text(tokenizer, texts.make(i), value);
    char hex[16];
    std::snprintf(hex, sizeof hex, "%s%08x", out.empty() ? "" : " ", value);
    out += hex;
  }
  return out;
}

const std::string kAssets = LODE_ASSET_DIR;

Json fixture() {
  const std::string path = LODE_TEST_DIR "/text/fixtures/vocabularies.json";
  return parse_json(real_files().read(path), path);
}

TEST(Vocabularies, EqualTheReference) {
  const Json expected = fixture();
  const Texts texts(expected);
  int found = 0, differing = 0;
  for (const auto& [name, hashes] : expected.at("vocabularies").as_object()) {
    const std::string folder = kAssets + "/" + name;
    if (!real_files().exists(folder + "/tokenizer.json")) {
      std::printf("not run: asset missing (%s; tools/fetch_assets.py fetches it)\n", name.c_str());
      continue;
    }
    found++;
    const Tokenizer tokenizer = Tokenizer::load(real_files(), folder);
    const std::string actual = group_hashes(tokenizer, expected, texts);
    differing += actual != hashes.as_string();
    EXPECT_EQ(actual, hashes.as_string()) << name;
  }
  std::printf("%d vocabularies x %d texts: %d differing\n", found,
              static_cast<int>(expected.at("texts").as_int()), differing);
}

// The same vocabularies rebuilt from GGUF's lists, and again after a round through our own writer.
TEST(Vocabularies, FromGgufEqualTheReference) {
  const Json expected = fixture();
  const Texts texts(expected);
  for (const std::string name : {"smollm2", "gemma3"}) {
    const std::string path = kAssets + "/" + name + "/metadata.gguf";
    if (!real_files().exists(path)) {
      std::printf("not run: asset missing (%s; tools/fetch_assets.py fetches it)\n", name.c_str());
      continue;
    }
    const Tokenizer tokenizer = tokenizer_from_gguf(GgufFile(real_files(), path));
    const std::string hashes = group_hashes(tokenizer, expected, texts);
    EXPECT_EQ(hashes, expected.at("vocabularies").at(name).as_string()) << name;
    const GgufTokenizerData data = gguf_tokenizer_data(tokenizer);
    EXPECT_TRUE(data.huggingface_json.empty()) << name;
    EXPECT_EQ(tokenizer_from_gguf(data, "again").fingerprint(), tokenizer.fingerprint()) << name;
  }
}

}  // namespace
}  // namespace lode
