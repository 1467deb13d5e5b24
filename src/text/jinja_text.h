// A string whose bytes remember where they came from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lode::jinja {

// What is known of a byte; -1: nothing.
struct Label {
  std::int32_t source = -1;  // the message whose data it is
  std::int32_t turn = -1;    // the message whose loop iteration printed it
  std::int32_t mark = -1;    // the {% generation %} block that printed it
  friend bool operator==(const Label&, const Label&) = default;
};

class Text {
 public:
  struct Run {
    std::size_t end;
    Label label;
  };

  Text() = default;
  explicit Text(std::string bytes, Label label = {});

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::size_t memory() const { return bytes_.size() + runs_.size() * sizeof(Run); }
  const std::vector<Run>& runs() const { return runs_; }  // cover all bytes, or empty: no byte has a label

  Label label_at(std::size_t at) const;
  void append(std::string_view bytes, Label label = {});
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);
  Text slice(std::size_t begin, std::size_t end) const;
  // Marked as safe: what is added to it with + is escaped for HTML first, as in the reference.
  bool markup() const { return markup_; }
  void set_markup() { markup_ = true; }
  // Bytes printed before keep their turn and mark.
  void stamp(std::int32_t turn, std::int32_t mark);

 private:
  void add_run(std::size_t end, const Label& label);

  std::string bytes_;
  std::vector<Run> runs_;
  bool markup_ = false;
};

// Byte offsets of all characters and of the end. A byte that is not valid UTF-8 is a character of its own.
std::vector<std::size_t> character_offsets(std::string_view text);
std::size_t count_characters(std::string_view text);
// The character at `at`; moves `at` behind it. An invalid byte gives U+FFFD.
char32_t read_character(std::string_view text, std::size_t& at);

// As Python's str.isspace and str.isprintable of one character.
bool is_space(char32_t c);
bool is_printable(char32_t c);

bool is_letter(char32_t c);
bool is_cased_letter(char32_t c);  // upper, lower or title case
bool is_decimal_digit(char32_t c);
char32_t upper_case(char32_t c);  // of one character, where one is enough
char32_t lower_case(char32_t c);

// [begin, end) of `text` without leading and trailing white space, or characters of `set` if not null.
struct Range {
  std::size_t begin, end;
};
Range strip_range(std::string_view text, bool left, bool right, const std::string* set = nullptr);

}  // namespace lode::jinja
