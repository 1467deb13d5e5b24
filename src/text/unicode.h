// UTF-8, the byte alphabet of byte-level tokenizers, and the normal forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lode::text {

// Length of the valid UTF-8 prefix.
std::size_t valid_utf8_prefix(std::string_view bytes);

// Length of the maximal subpart of an ill-formed sequence that starts at bytes[0] (at least 1). `incomplete`
// is set when more bytes could still complete it.
std::size_t invalid_utf8_length(std::string_view bytes, bool& incomplete);

// Every maximal invalid sequence replaced by U+FFFD.
std::string lossy_utf8(std::string_view bytes);

// The code point at text[at], which must be valid UTF-8; moves `at` behind it.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_code_point(char32_t code_point, std::string& out);

// The byte alphabet: byte -> character, and back (-1 for a character outside of it).
char32_t byte_to_character(std::uint8_t byte);
int character_to_byte(char32_t character);
std::string bytes_to_alphabet(std::string_view bytes);
// The bytes that a token's spelling stands for; a token with a character outside the alphabet stands for
// itself.
std::string alphabet_to_bytes(std::string_view spelling);
bool in_alphabet(std::string_view spelling);

// `text` must be valid UTF-8. Equals the reference's normal forms; linear but for sorting long runs of
// combining marks.
enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);
std::string nfc(std::string_view text);

// Character by character, as the reference does it; valid UTF-8 in and out.
std::string lowercase(std::string_view text);
std::string without_marks(std::string_view text);  // leaves out combining marks
bool is_white_space(char32_t c);
std::string_view strip_white_space(std::string_view text, bool left, bool right);
std::size_t previous_character(std::string_view text, std::size_t end);  // start of the last one before end

// `text` with characters that PCRE2 does not know replaced by stand-ins of the same class and length; empty
// when there are none.
std::string with_stand_ins(std::string_view text);

}  // namespace lode::text
