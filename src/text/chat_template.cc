#include "text/chat_template.h"

#include <algorithm>
#include <optional>

#include "core/fail.h"
#include "text/jinja_interpreter.h"

namespace lode {

using jinja::Label;
using jinja::Text;
using jinja::Value;

struct ChatTemplate::State {
  std::string source;
  jinja::Program program;
  std::map<std::string, std::string> named_tokens;
};

namespace {

std::vector<Value> message_values(const Json& messages, std::string_view what) {
  if (!messages.is_array())
    fail(ErrorKind::data, "{}: messages must be an array, found {}", what, messages.type_name());
  std::vector<Value> values;
  for (const Json& message : messages.as_array()) {
    const auto index = static_cast<std::int32_t>(values.size());
    if (!message.is_object()) {
      fail(ErrorKind::data, "{}: message {} must be an object, found {}", what, index, message.type_name());
    }
    values.push_back(jinja::from_json(message, Label{index, -1, -1}, index));
    if (values.back().depth() > jinja::kMaxValueDepth) {
      fail(ErrorKind::data, "{}: message {} is nested too deeply", what, index);
    }
  }
  return values;
}

// Renders one conversation and its beginnings.
class Renderer {
 public:
  Renderer(const jinja::Program& program, const std::map<std::string, std::string>& tokens,
           const Json& messages, const RenderOptions& options)
      : program_(program), now_(options.now), messages_(message_values(messages, program.what)) {
    for (const auto& [name, token] : tokens) variables_.emplace_back(name, Value::string(token));
    if (!options.variables.is_null()) {
      for (const auto& [name, value] : options.variables.as_object()) set(name, jinja::from_json(value, {}));
    }
    set("tools", jinja::from_json(options.tools, {}));
    if (std::ranges::find(variables_, "documents", [](auto& v) { return v.first; }) == variables_.end()) {
      set("documents", Value());
    }
  }

  Text render(std::size_t count, bool generation_prompt) {
    jinja::Interpreter::Variables variables = variables_;
    jinja::List list;
    list.items.assign(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(count));
    variables.emplace_back("messages", std::move(list));
    variables.emplace_back("add_generation_prompt", generation_prompt);
    return jinja::Interpreter(program_, std::move(variables), {}, now_).run();
  }

  // What the model sees before message `count`; nothing when the template rejects that beginning.
  std::optional<Text> beginning(std::size_t count, bool generation_prompt) {
    try {
      return render(count, generation_prompt);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  void set(const std::string& name, Value value) {
    if (name == "messages" || name == "add_generation_prompt") {
      fail(ErrorKind::data, "{}: \"{}\" cannot be a variable of its own", program_.what, name);
    }
    std::erase_if(variables_, [&](const auto& variable) { return variable.first == name; });
    variables_.emplace_back(name, std::move(value));
  }

  const jinja::Program& program_;
  std::int64_t now_;
  std::vector<Value> messages_;
  jinja::Interpreter::Variables variables_;
};

class SpanFinder {
 public:
  SpanFinder(const Text& text, const Json& messages, bool generation_prompt, Renderer& renderer)
      : text_(text), renderer_(renderer), generation_prompt_(generation_prompt) {
    for (const Json& message : messages.as_array()) {
      const Json* role = message.find("role");
      assistant_.push_back(role != nullptr && role->is_string() && role->as_string() == "assistant");
    }
  }

  std::vector<MessageSpan> find(bool by_marks) {
    collect_pieces();
    if (by_marks) {
      add_marked();
    } else {
      for (std::size_t i = 0; i < assistant_.size(); ++i) add_message(i);
      std::ranges::sort(spans_, {}, &MessageSpan::begin);
    }
    return std::move(spans_);
  }

 private:
  struct Piece {
    std::size_t begin, end;
    Label label;
    std::int32_t owner;
  };

  // Data of a message that is not the model's stays its own in another's turn, so tool results in the model's
  // turn are not learned; data of the model printed in another's turn is that turn's.
  std::int32_t owner(const Label& label) const {
    if (label.turn < 0) return label.source;
    const bool foreign = label.source >= 0 && label.source != label.turn;
    return foreign && !assistant_[static_cast<std::size_t>(label.source)] ? label.source : label.turn;
  }

  void collect_pieces() {
    std::size_t begin = 0;
    for (const Text::Run& run : text_.runs()) {
      pieces_.push_back({begin, run.end, run.label, owner(run.label)});
      begin = run.end;
    }
  }

  void add(std::size_t message, std::size_t begin, std::size_t end, bool trained) {
    if (begin >= end) return;
    const auto index = static_cast<std::int64_t>(message);
    if (!spans_.empty() && spans_.back().message == index && spans_.back().trained == trained &&
        spans_.back().end == begin) {
      spans_.back().end = end;
    } else {
      spans_.push_back({index, begin, end, trained});
    }
  }

  void add_message(std::size_t message) {
    std::vector<Piece> own;
    std::ranges::copy_if(pieces_, std::back_inserter(own), [&](const Piece& piece) {
      return piece.owner == static_cast<std::int32_t>(message);
    });
    if (own.empty()) return;
    if (assistant_[message]) take_tail(message, own);
    std::size_t begin = text_.size(), end = begin;
    if (assistant_[message]) {
      begin = trained_begin(message, own);
      end = std::max(begin, trained_end(own));
    }
    for (const Piece& piece : own) {
      add(message, piece.begin, std::min(piece.end, begin), false);
      add(message, std::max(piece.begin, begin), std::min(piece.end, end), true);
      add(message, std::max(piece.begin, end), piece.end, false);
    }
  }

  // A template can print the last turn's end marker behind all loops: it belongs to the turn, unless that has
  // one of its own already.
  void take_tail(std::size_t message, std::vector<Piece>& own) const {
    const Piece& last = own.back();
    if (generation_prompt_ || last.label.source != static_cast<std::int32_t>(message)) return;
    const bool more = std::ranges::any_of(
        pieces_, [&](const Piece& piece) { return piece.begin >= last.end && piece.owner >= 0; });
    if (!more && last.end < text_.size()) own.push_back({last.end, text_.size(), Label{}, last.owner});
  }

  std::size_t trained_begin(std::size_t message, const std::vector<Piece>& own) {
    const std::string& text = text_.bytes();
    const std::size_t start = own.front().begin;
    const auto given = renderer_.beginning(message, true);
    if (given && text.starts_with(given->bytes())) return std::max(start, given->size());
    // The template prints earlier messages differently while they are recent: compare the prompt alone.
    const auto data = std::ranges::find(own, static_cast<std::int32_t>(message),
                                        [](const Piece& piece) { return piece.label.source; });
    const std::size_t first_data = data == own.end() ? own.back().end : data->begin;
    if (!given) return data == own.end() ? start : first_data;
    return start + provided(generation_prompt(message, *given), text.substr(start), first_data - start);
  }

  // What the switch adds; for a template that always prints it, what no message printed at the end.
  std::string generation_prompt(std::size_t message, const Text& given) {
    const auto before = renderer_.beginning(message, false);
    const std::string& bytes = given.bytes();
    if (before && before->size() < bytes.size() && bytes.starts_with(before->bytes())) {
      return bytes.substr(before->size());
    }
    if (given.runs().empty()) return bytes;
    const auto& runs = given.runs();
    const std::size_t begin = runs.size() < 2 ? 0 : runs[runs.size() - 2].end;
    return owner(runs.back().label) < 0 ? bytes.substr(begin) : std::string();
  }

  // How much of the turn the generation prompt gives. When they part ways, it is up to the end of the last
  // line or marker that they share: a marker is one token, and never half given.
  static std::size_t provided(std::string_view prompt, std::string_view turn, std::size_t first_data) {
    if (turn.starts_with(prompt)) return prompt.size();
    const auto parted = std::ranges::mismatch(prompt, turn).in1;
    const auto shared = std::min(static_cast<std::size_t>(parted - prompt.begin()), first_data);
    if (shared == first_data) return shared;
    const std::size_t marker = prompt.substr(0, shared).find_last_of("\n>]");
    return marker == std::string_view::npos ? 0 : marker + 1;
  }

  // White space of the template behind its end-of-turn marker is not generated. Behind the message's own text
  // it is all that ends the turn, and kept.
  std::size_t trained_end(const std::vector<Piece>& own) const {
    const std::size_t end = own.back().end;
    std::size_t stripped = end;
    while (stripped > own.back().begin &&
           std::string_view(" \t\r\n").find(text_.bytes()[stripped - 1]) != std::string_view::npos) {
      --stripped;
    }
    const bool literal = own.back().label.source < 0;
    return literal && stripped > own.back().begin ? stripped : end;
  }

  void add_marked() {
    std::vector<std::size_t> assistants;
    for (std::size_t i = 0; i < assistant_.size(); ++i) {
      if (assistant_[i]) assistants.push_back(i);
    }
    std::int32_t block = -1;
    std::size_t blocks = 0;
    for (const Piece& piece : pieces_) {
      const bool trained = piece.label.mark >= 0;
      if (trained && piece.label.mark != block) ++blocks;
      if (trained) block = piece.label.mark;
      auto message = static_cast<std::size_t>(piece.owner);
      if (trained && (piece.owner < 0 || !assistant_[message])) {
        if (blocks > assistants.size()) continue;  // no message it could belong to
        message = assistants[blocks - 1];
      } else if (piece.owner < 0) {
        continue;
      }
      add(message, piece.begin, piece.end, trained);
    }
  }

  const Text& text_;
  Renderer& renderer_;
  bool generation_prompt_;
  std::vector<bool> assistant_;
  std::vector<Piece> pieces_;
  std::vector<MessageSpan> spans_;
};

}  // namespace

ChatTemplate ChatTemplate::parse(std::string source, std::string what,
                                 std::map<std::string, std::string> named_tokens) {
  auto state = std::make_shared<State>();
  state->program = jinja::parse_program(source, std::move(what));
  state->source = std::move(source);
  state->named_tokens = std::move(named_tokens);
  return ChatTemplate(std::move(state));
}

RenderedChat ChatTemplate::render(const Json& messages, const RenderOptions& options) const {
  Renderer renderer(state_->program, state_->named_tokens, messages, options);
  const Text text = renderer.render(messages.size(), options.add_generation_prompt);
  return {text.bytes(),
          SpanFinder(text, messages, options.add_generation_prompt, renderer).find(has_generation_marks())};
}

bool ChatTemplate::has_generation_marks() const {
  return state_->program.has_generation;
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

}  // namespace lode
