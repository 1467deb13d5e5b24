#include "text/chat_template.h"

#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lode::Json messages = lode::parse_json(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi {{ x }}"},
          {"role": "assistant", "content": "Hello <|im_end|>"}])",
      "messages");
  return lode::read_or_refuse([&] {
    const auto chat = lode::ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size),
                                                "template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    lode::RenderOptions options;
    options.now = 0;
    const lode::RenderedChat rendered = chat.render(messages, options);
    for (const lode::MessageSpan& span : rendered.spans) {
      if (span.begin >= span.end || span.end > rendered.text.size()) std::abort();
    }
  });
}
