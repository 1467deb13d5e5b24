#include "train/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kMaxDepth = 16;
constexpr int kMaxNodes = 20000;

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& name) : name_(name) { root_.kind = YamlNode::Kind::list; }

  YamlNode take_root() { return std::move(root_.items.front()); }
  bool empty() const { return root_.items.empty(); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    YamlNode node;
    node.line = mark.line + 1;
    add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(mark, 1); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    // "?" is a plain scalar, "!" a quoted one; anything else was tagged by hand.
    if (tag != "?" && tag != "!" && tag != "tag:yaml.org,2002:str") refuse_tag(mark, tag);
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.line = mark.line + 1;
    node.text = value;
    node.plain = tag == "?";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor == 0) return;
    fail(ErrorKind::usage, "{}:{}: anchors and aliases (&name, *name) are not accepted; write the value out",
         name_, mark.line + 1);
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail(ErrorKind::usage, "{}:{}: the tag '{}' is not accepted; write a plain value", name_, mark.line + 1,
         tag);
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (stack_.size() >= kMaxDepth) {
      fail(ErrorKind::usage, "{}:{}: nested deeper than {} levels", name_, mark.line + 1, kMaxDepth);
    }
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    stack_.push_back(std::move(node));
  }

  void close() {
    YamlNode node = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (++num_nodes_ > kMaxNodes) {
      fail(ErrorKind::usage, "{}:{}: more than {} values in one recipe", name_, node.line, kMaxNodes);
    }
    YamlNode& parent = stack_.empty() ? root_ : stack_.back();
    if (parent.kind == YamlNode::Kind::map && parent.keys.size() == parent.items.size()) {
      if (!node.is_scalar()) {
        fail(ErrorKind::usage, "{}:{}: a key must be a name, found {}", name_, node.line, node.describe());
      }
      parent.keys.push_back(std::move(node.text));
      parent.key_lines.push_back(node.line);
    } else {
      parent.items.push_back(std::move(node));
    }
  }

  const std::string& name_;
  YamlNode root_;
  std::vector<YamlNode> stack_;
  int num_nodes_ = 0;
};

// Digits without the underscores that YAML allows between them; empty when they stand elsewhere.
std::string without_underscores(const std::string& text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() &&
                         std::isdigit(static_cast<unsigned char>(text[i - 1])) &&
                         std::isdigit(static_cast<unsigned char>(text[i + 1]));
    if (!between) return "";
  }
  if (digits.size() > 1 && digits[0] == '+') digits.erase(0, 1);
  return digits;
}

template <class T>
std::optional<T> read_whole(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<bool> YamlNode::as_bool() const {
  if (kind != Kind::scalar || !plain) return std::nullopt;
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "no" || lower == "off") return false;
  return std::nullopt;
}

std::optional<long long> YamlNode::as_int() const {
  if (kind != Kind::scalar || !plain) return std::nullopt;
  if (const auto value = read_whole<long long>(without_underscores(text))) return value;
  const auto number = as_number();
  if (number && std::abs(*number) < 1e15 && *number == std::floor(*number)) {
    return static_cast<long long>(*number);
  }
  return std::nullopt;
}

std::optional<double> YamlNode::as_number() const {
  if (kind != Kind::scalar || !plain) return std::nullopt;
  const auto value = read_whole<double>(without_underscores(text));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::null:
      return "nothing";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a block of keys";
    case Kind::scalar:
      break;
  }
  const std::string shown = text.size() <= 60 ? text : text.substr(0, 57) + "...";
  if (!plain) return format("the quoted text \"{}\"", shown);
  return shown;
}

YamlNode parse_yaml(std::string_view text, const std::string& name) {
  if (text.size() > kMaxBytes) {
    fail(ErrorKind::usage, "{}: {} is too large for a recipe (at most {})", name, format_bytes(text.size()),
         format_bytes(kMaxBytes));
  }
  if (text.find('\0') != std::string_view::npos) {
    fail(ErrorKind::usage, "{}: holds a NUL byte; a recipe is a text file", name);
  }
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(name);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder) || builder.empty()) {
      YamlNode map;
      map.kind = YamlNode::Kind::map;
      map.line = 1;
      return map;
    }
    YamlNode root = builder.take_root();
    TreeBuilder second(name);
    if (parser.HandleNextDocument(second)) {
      fail(ErrorKind::usage, "{}: holds several YAML documents (---); a recipe is one", name);
    }
    return root;
  } catch (const YAML::Exception& e) {
    const int line = e.mark.is_null() ? 1 : e.mark.line + 1;
    fail(ErrorKind::usage, "{}:{}: not valid YAML: {}", name, line, e.msg);
  }
}

std::string yaml_quote(std::string_view text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.plain = true;
  node.text = std::string(text);
  const auto harmless = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '/' || c == '.' || c == '+';
  };
  const bool plain = !text.empty() && text[0] != '-' && std::ranges::all_of(text, harmless) &&
                     !node.as_bool() && !node.as_number() && text != "null" && text != "Null" &&
                     text != "NULL";
  if (plain) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      quoted += "\\x";
      quoted += kHex[(c >> 4) & 15];
      quoted += kHex[c & 15];
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace lode
