#include "data/encode.h"

#include <algorithm>
#include <exception>

#include "core/fail.h"
#include "core/parallel.h"

namespace lode {
namespace {

constexpr std::size_t kPieceBytes = 256u << 10;  // text of one task

struct Text {
  std::string text;
  Origin origin;
};

// A document, or a part of one, to be encoded by one call.
struct Piece {
  std::size_t document = 0;
  std::string_view text;
};

// Consecutive pieces of one shard, encoded by one task.
struct Task {
  std::size_t shard = 0;
  std::vector<Piece> pieces;
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;  // of each piece in tokens
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Where to cut `text` after about kPieceBytes; its whole length when it cannot be cut.
std::size_t find_cut(std::string_view text) {
  for (std::size_t at = kPieceBytes; at < text.size(); ++at) {
    at = text.find('\n', at);
    if (at == std::string_view::npos || at + 1 >= text.size()) break;
    if (is_letter(text[at + 1])) return at + 1;
  }
  return text.size();
}

void add_tasks(std::size_t shard, const std::vector<Text>& texts, bool cut_documents,
               std::vector<Task>& tasks) {
  std::size_t bytes = kPieceBytes;  // a shard begins a new task
  for (std::size_t document = 0; document < texts.size(); ++document) {
    std::string_view rest = texts[document].text;
    while (!rest.empty()) {
      const std::size_t end = cut_documents ? find_cut(rest) : rest.size();
      if (bytes >= kPieceBytes) {
        tasks.push_back({shard});
        bytes = 0;
      }
      tasks.back().pieces.push_back({document, rest.substr(0, end)});
      bytes += end;
      rest.remove_prefix(end);
    }
  }
}

void encode(Task& task, const TextEncoder& encoder) {
  for (const Piece& piece : task.pieces) {
    encoder.encode(piece.text, task.tokens);
    task.ends.push_back(task.tokens.size());
  }
  for (const std::int32_t token : task.tokens) LODE_ASSERT(token >= 0 && token < encoder.vocab_size);
}

// Appends what the tasks of one shard made.
void assemble(std::span<const Task> tasks, const std::vector<Text>& texts, const TextEncoder& encoder,
              ShardContents& contents) {
  std::size_t document = 0, begin = 0;
  const auto close = [&] {
    if (contents.tokens.size() == begin) {  // an encoder may leave nothing of a text
      --contents.report.documents;
      ++contents.report.empty;
      contents.report.text_bytes -= static_cast<std::int64_t>(texts[document].text.size());
      return;
    }
    if (encoder.eos_id) contents.tokens.push_back(*encoder.eos_id);
    contents.lengths.push_back(static_cast<std::int64_t>(contents.tokens.size() - begin));
    contents.text_bytes.push_back(static_cast<std::int64_t>(texts[document].text.size()));
    contents.origins.push_back(texts[document].origin);
    begin = contents.tokens.size();
  };
  for (const Task& task : tasks) {
    std::size_t from = 0;
    for (std::size_t i = 0; i < task.pieces.size(); ++i) {
      if (task.pieces[i].document != document) {
        close();
        document = task.pieces[i].document;
      }
      contents.tokens.insert(contents.tokens.end(), task.tokens.begin() + static_cast<std::ptrdiff_t>(from),
                             task.tokens.begin() + static_cast<std::ptrdiff_t>(task.ends[i]));
      from = task.ends[i];
    }
  }
  if (!tasks.empty()) close();
}

Origin origin_of(const PendingRecord& record) {
  return {record.file, static_cast<std::uint32_t>(std::min<std::int64_t>(record.raw.line, UINT32_MAX))};
}

void decode(PendingShard& shard, const PrepareOptions& options, std::vector<Text>& texts) {
  for (PendingRecord& record : shard.records) {
    Text text{{}, origin_of(record)};
    if (decode_record(*record.source, options.read, record.raw, text.text, shard.contents.report)) {
      texts.push_back(std::move(text));
    }
    record.raw.text = {};
  }
}

void add_weights(std::span<const float> weights, std::uint32_t begin, std::vector<WeightRun>& runs) {
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    if (runs.empty() || runs.back().weight != weights[i]) runs.push_back({0, weights[i]});
    runs.back().end = begin + i + 1;
  }
}

// Records that the encoder turns into tokens by itself.
void encode_records(PendingShard& shard, const TextEncoder& encoder) {
  ShardContents& contents = shard.contents;
  for (PendingRecord& record : shard.records) {
    EncodedRecord encoded;
    if (encoder.encode_record(*record.source, record.raw, encoded, contents.report)) {
      LODE_ASSERT(!encoded.tokens.empty() && encoded.tokens.size() == encoded.weights.size());
      for (const std::int32_t token : encoded.tokens) LODE_ASSERT(token >= 0 && token < encoder.vocab_size);
      LODE_ASSERT(contents.tokens.size() + encoded.tokens.size() <= UINT32_MAX);
      add_weights(encoded.weights, static_cast<std::uint32_t>(contents.tokens.size()), contents.weights);
      contents.tokens.insert(contents.tokens.end(), encoded.tokens.begin(), encoded.tokens.end());
      contents.lengths.push_back(static_cast<std::int64_t>(encoded.tokens.size()));
      contents.text_bytes.push_back(encoded.text_bytes);
      contents.origins.push_back(origin_of(record));
    }
    record.raw.text = {};
  }
}

}  // namespace

void make_shards(FileSystem& files, std::vector<PendingShard>& shards, const TextEncoder& encoder,
                 const PrepareOptions& options) {
  const auto num_shards = static_cast<std::int64_t>(shards.size());
  std::vector<std::vector<Text>> texts(shards.size());
  std::vector<std::exception_ptr> failures(shards.size());
  parallel_tasks(options.threads, num_shards, [&](std::int64_t task, int) {
    const auto s = static_cast<std::size_t>(task);
    try {
      if (encoder.encode_record) {
        encode_records(shards[s], encoder);
      } else {
        decode(shards[s], options, texts[s]);
      }
    } catch (...) {
      failures[s] = std::current_exception();
    }
  });
  std::size_t num_good = 0;
  while (num_good < shards.size() && !failures[num_good]) ++num_good;

  std::vector<Task> tasks;
  std::vector<std::size_t> first_task;
  for (std::size_t s = 0; s < num_good; ++s) {
    first_task.push_back(tasks.size());
    add_tasks(s, texts[s], encoder.independent_lines, tasks);
  }
  first_task.push_back(tasks.size());
  parallel_tasks(options.threads, static_cast<std::int64_t>(tasks.size()),
                 [&](std::int64_t task, int) { encode(tasks[static_cast<std::size_t>(task)], encoder); });
  parallel_tasks(options.threads, static_cast<std::int64_t>(num_good), [&](std::int64_t task, int) {
    const auto s = static_cast<std::size_t>(task);
    const std::span<const Task> own(tasks.data() + first_task[s], first_task[s + 1] - first_task[s]);
    assemble(own, texts[s], encoder, shards[s].contents);
    write_shard(files, shards[s].path, shards[s].contents, encoder.vocab_size);
  });
  if (num_good < shards.size()) std::rethrow_exception(failures[num_good]);
}

}  // namespace lode
