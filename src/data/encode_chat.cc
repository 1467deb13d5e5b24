#include "data/encode_chat.h"

#include <algorithm>

#include "core/fail.h"
#include "data/digest.h"
#include "text/builtin_templates.h"
#include "text/tokenizer_offsets.h"

namespace lode {
namespace {

bool is_system(const Json& message) {
  const std::string& role = message.at("role").as_string();
  return role == "system" || role == "developer";
}

// What a span of a message counts.
float weight_of(const ChatRow& row, const MessageSpan& span, const ChatEncodeOptions& options,
                std::size_t first_message) {
  const auto message = static_cast<std::size_t>(span.message);
  if (options.mask_history && message + 1 != row.messages.size() + first_message) return 0;
  // A default system message has been put before the row's own.
  std::optional<float> stated;
  if (message >= first_message && message - first_message < row.weights.size()) {
    stated = row.weights[message - first_message];
  }
  const bool answer = message >= first_message &&
                      row.messages.as_array()[message - first_message].at("role").as_string() == "assistant";
  if (stated && (!answer || span.trained || options.train_on_prompt)) return *stated;
  return options.train_on_prompt || span.trained ? 1.0f : 0.0f;
}

}  // namespace

ChatEncoder::ChatEncoder(Tokenizer tokenizer, std::optional<ChatTemplate> chat_template,
                         ChatEncodeOptions options)
    : tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      options_(std::move(options)) {
  if (options_.train_on_prompt && options_.mask_history) {
    fail(ErrorKind::usage,
         "train_on_prompt and mask_history contradict each other: one trains on everything, the other on the "
         "last answer alone; keep one");
  }
  prefix_ = tokenizer_.encode("", {.add_special_tokens = true});
  if (!prefix_.empty() && prefix_.back() == tokenizer_.eos_id()) prefix_.pop_back();
  Digest digest;
  digest.field("chat 2").field(tokenizer_.fingerprint()).field(options_.default_system);
  digest.field(std::int64_t{options_.train_on_prompt}).field(std::int64_t{options_.mask_history});
  digest.field(options_.variables.dump()).field(kTemplateTime);
  digest.field(chat_template_ ? chat_template_->source() : "");
  for (const auto& [name, token] : tokenizer_.named_tokens()) digest.field(name).field(token);
  fingerprint_ = digest.hex();
}

EncodedRecord ChatEncoder::encode(const ChatRow& row) const {
  switch (row.kind) {
    case ChatRow::Kind::conversation:
      return encode_conversation(row);
    case ChatRow::Kind::completion:
      return encode_completion(row);
    case ChatRow::Kind::text:
      return encode_text(row);
  }
  LODE_ASSERT(false);
}

std::string ChatEncoder::special_in_content(const ChatRow& row) const {
  if (row.kind != ChatRow::Kind::conversation) return "";
  std::size_t number = 0;
  for (const Json& message : row.messages.as_array()) {
    ++number;
    const Json* content = message.find("content");
    if (content == nullptr || !content->is_string()) continue;
    const std::string_view token = tokenizer_.find_special(content->as_string());
    if (!token.empty())
      return format("message {} ({}): \"{}\"", number, message.at("role").as_string(), token);
  }
  return "";
}

EncodedRecord ChatEncoder::encode_conversation(const ChatRow& row) const {
  if (!chat_template_) {
    std::string known;
    for (const std::string& name : builtin_template_names()) known += (known.empty() ? "" : ", ") + name;
    fail(ErrorKind::usage,
         "conversations need a chat template and the model has none; name one with template: {}", known);
  }
  const bool add_system = !options_.default_system.empty() && !is_system(row.messages.as_array().front());
  Json with_system;
  if (add_system) {
    with_system.push_back(Json::object({{"role", "system"}, {"content", options_.default_system}}));
    for (const Json& message : row.messages.as_array()) with_system.push_back(message);
  }
  RenderOptions render;
  render.tools = row.tools;
  render.variables = options_.variables;
  render.now = kTemplateTime;
  const RenderedChat chat = chat_template_->render(add_system ? with_system : row.messages, render);

  std::vector<std::size_t> cuts;
  for (const MessageSpan& span : chat.spans) {
    cuts.push_back(span.begin);
    cuts.push_back(span.end);
  }
  CutTokens tokens = encode_with_cuts(tokenizer_, chat.text, cuts);
  EncodedRecord record;
  record.text_bytes = static_cast<std::int64_t>(chat.text.size());
  record.weights.assign(tokens.ids.size(), options_.train_on_prompt ? 1.0f : 0.0f);
  for (std::size_t i = 0; i < chat.spans.size(); ++i) {
    const float weight = weight_of(row, chat.spans[i], options_, add_system ? 1 : 0);
    for (std::size_t t = tokens.cuts[2 * i]; t < tokens.cuts[2 * i + 1]; ++t) record.weights[t] = weight;
  }
  record.tokens = std::move(tokens.ids);
  return record;
}

// Without a template: the prompt, the completion right behind it and the end token.
EncodedRecord ChatEncoder::encode_completion(const ChatRow& row) const {
  const std::string text = row.prompt + row.text;
  const std::size_t cut = row.prompt.size();
  const CutTokens tokens = encode_with_cuts(tokenizer_, text, {&cut, 1});
  EncodedRecord record;
  record.text_bytes = static_cast<std::int64_t>(text.size());
  record.tokens = prefix_;
  record.tokens.insert(record.tokens.end(), tokens.ids.begin(), tokens.ids.end());
  if (tokenizer_.eos_id()) record.tokens.push_back(*tokenizer_.eos_id());
  record.weights.assign(record.tokens.size(), 1.0f);
  if (!options_.train_on_prompt) std::fill_n(record.weights.begin(), prefix_.size() + tokens.cuts[0], 0.0f);
  return record;
}

EncodedRecord ChatEncoder::encode_text(const ChatRow& row) const {
  EncodedRecord record;
  record.text_bytes = static_cast<std::int64_t>(row.text.size());
  record.tokens = tokenizer_.encode(row.text, {.parse_special = false});
  record.tokens.insert(record.tokens.begin(), prefix_.begin(), prefix_.end());
  if (tokenizer_.eos_id()) record.tokens.push_back(*tokenizer_.eos_id());
  record.weights.assign(record.tokens.size(), 1.0f);
  return record;
}

namespace {

bool encode_chat_record(const ChatEncoder& encoder, const ChatSchema& schema, const ReadOptions& read,
                        const SourceFile& source, RawRecord& raw, EncodedRecord& record, ReadReport& report) {
  ChatRow row;
  if (source.format == FileFormat::text) {
    std::string text;
    ReadReport own;
    if (!decode_record(source, read, raw, text, own)) {
      report.add(own);
      return false;
    }
    own.documents = own.text_bytes = 0;
    report.add(own);
    row.kind = ChatRow::Kind::text;
    row.text = std::move(text);
  } else {
    Json json;
    if (!decode_json(source, read, raw, json, report)) return false;
    if (const auto problem = read_chat_row(json, schema, row)) {
      reject_record(source, read.bad_records, raw, problem->reason, problem->detail, report);
      return false;
    }
  }
  try {
    record = encoder.encode(row);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    reject_record(source, read.bad_records, raw, "the chat template rejects it", error.what(), report);
    return false;
  }
  // The first token is not a target: nothing comes before it.
  if (record.tokens.size() < 2 || std::all_of(record.weights.begin() + 1, record.weights.end(),
                                              [](float weight) { return weight == 0; })) {
    drop_record(source, raw, "no target", report);
    return false;
  }
  if (const std::string where = encoder.special_in_content(row); !where.empty())
    note_record(source, raw, "special tokens in the text of a message", where, report);
  ++report.documents;
  report.text_bytes += record.text_bytes;
  return true;
}

}  // namespace

TextEncoder chat_text_encoder(std::shared_ptr<const ChatEncoder> encoder, ChatSchema schema,
                              BadRecords bad_records) {
  TextEncoder out;
  out.vocab_size = encoder->tokenizer().vocab_size();
  out.eos_id = encoder->tokenizer().eos_id();
  out.fingerprint = encoder->fingerprint() + schema.fingerprint();
  ReadOptions read;
  read.bad_records = bad_records;
  out.encode_record = [encoder, schema, read](const SourceFile& source, RawRecord& raw, EncodedRecord& record,
                                              ReadReport& report) {
    return encode_chat_record(*encoder, schema, read, source, raw, record, report);
  };
  return out;
}

}  // namespace lode
