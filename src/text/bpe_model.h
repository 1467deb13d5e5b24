// The merge step of BPE: one pre-token to ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lode::text {

struct StringHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the name that the library looks for
  std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};
using StringToId = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

// Pair of ids -> rank and merged id, in one flat table.
class MergeTable {
 public:
  struct Merge {
    std::uint64_t pair = kEmpty;
    std::uint32_t rank = 0;
    std::int32_t id = -1;
  };
  void reserve(std::size_t merges);
  void set(std::int32_t left, std::int32_t right, std::uint32_t rank,
           std::int32_t id);  // replaces an earlier one
  const Merge* find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return nullptr;
    const std::uint64_t pair = key(left, right);
    for (std::size_t i = slot(pair);; i = (i + 1) & mask_) {
      if (slots_[i].pair == pair) return &slots_[i];
      if (slots_[i].pair == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot(std::uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u >> 20) & mask_; }
  std::vector<Merge> slots_;
  std::size_t mask_ = 0;
};

// Results of earlier words and working memory; one per thread.
class WordCache {
 public:
  // The ids of a word seen before, or false.
  bool find(std::string_view word, std::uint64_t hash, std::vector<std::int32_t>& out) const;
  void insert(std::string_view word, std::uint64_t hash, const std::int32_t* ids, std::size_t num_ids);
  static std::uint64_t hash(std::string_view word);

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t word_at = 0, ids_at = 0;
    std::uint16_t word_size = 0, num_ids = 0;  // word_size 0: free
  };
  void grow();
  std::vector<Entry> entries_;
  std::size_t used_ = 0;
  std::string words_;
  std::vector<std::int32_t> ids_;
};

struct BpeScratch {
  struct Symbol {
    std::int32_t id, previous, next;  // previous, next: indices, -1 at the ends; id -1: merged away
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at, id;  // index of the left symbol, id of the merged one
  };
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

// Appends a symbol linked to its neighbours; the last one's `next` is set by the caller.
void push_symbol(std::vector<BpeScratch::Symbol>& symbols, std::int32_t id);

class BpeModel {
 public:
  // Byte level: words are bytes. Otherwise words are UTF-8 and start as characters.
  bool byte_level = true;
  std::int32_t byte_ids[256];               // -1: no token. Without byte level: the ids of <0x00>...<0xFF>
  std::vector<std::int32_t> character_ids;  // by code point, -1: no token; not used at byte level
  bool byte_fallback = false;               // a character without a token becomes its bytes' tokens
  MergeTable merges;
  bool ignore_merges = false;
  StringToId whole_words;  // word -> id; filled only when ignore_merges
  std::optional<std::int32_t> unknown_id;
  bool fuse_unknown = false;
  // Without byte level, once everything above is set: finds where long words may be cut. No token that the
  // merges lead to has a character outside `glued` before a word mark (U+2581), so no merge crosses there.
  void find_cuts(const std::vector<std::string_view>& merged_tokens);

  // Appends the ids of one non-empty pre-token. Words of any length take O(n log n).
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<std::int32_t>& out) const;

 private:
  void encode_part(std::string_view part, BpeScratch& scratch, std::vector<std::int32_t>& out) const;
  void merge_into(std::string_view part, BpeScratch& scratch, std::vector<std::int32_t>& out) const;
  void bytes_to_symbols(std::string_view bytes, std::vector<BpeScratch::Symbol>& symbols) const;
  void characters_to_symbols(std::string_view text, std::vector<BpeScratch::Symbol>& symbols) const;
  bool fall_back(std::string_view character, std::vector<BpeScratch::Symbol>& symbols) const;
  std::size_t next_cut(std::string_view word, std::size_t start) const;
  void merge_short(std::vector<BpeScratch::Symbol>& symbols) const;
  void merge_long(BpeScratch& scratch) const;

  bool has_cuts_ = false;
  std::vector<bool> glued_;  // by code point: a token continues with U+2581 after this character
};

}  // namespace lode::text
