#include "infer/chat.h"

namespace lode {
namespace {

Json message(std::string_view role, std::string_view content) {
  return Json::object({{"role", role}, {"content", content}});
}

}  // namespace

ChatSession::ChatSession(Context& context, Decoder& decoder, const Tokenizer& tokenizer,
                         const ChatTemplate& chat_template, ChatOptions options)
    : context_(context),
      decoder_(decoder),
      tokenizer_(tokenizer),
      template_(chat_template),
      options_(std::move(options)),
      messages_(Json::array()) {
  if (!options_.system.empty()) messages_.push_back(message("system", options_.system));
}

Generated ChatSession::answer(std::string_view text, const std::function<void(std::string_view)>& on_text) {
  Json messages = messages_;
  messages.push_back(message("user", text));
  const RenderedChat chat =
      template_.render(messages, {.add_generation_prompt = true, .variables = options_.variables});
  Generated out = generate_after(context_, decoder_, tokenizer_, tokenizer_.encode(chat.text),
                                 options_.generate, on_text);
  messages.push_back(message("assistant", out.text));
  messages_ = std::move(messages);
  return out;
}

}  // namespace lode
