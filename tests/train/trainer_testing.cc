#include "train/trainer_testing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/rng.h"
#include "io/weights.h"
#include "text/bpe_trainer.h"

namespace lode {
namespace {

constexpr auto kLlama =
    R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64})";
constexpr auto kGpt2 = R"({"model_type": "gpt2", "vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 2,
  "n_positions": 64, "attn_pdrop": 0.0, "embd_pdrop": 0.1, "resid_pdrop": 0.1})";
constexpr std::string_view kWords[] = {"the", "cat", "sat", "on", "a",  "mat", "and", "saw", "that",
                                       "big", "dog", "run", "to", "me", "you", "we",  "all", "day"};

std::vector<std::string> make_documents(int count, std::uint64_t seed) {
  Rng rng(seed, "documents");
  std::vector<std::string> documents;
  for (int i = 0; i < count; ++i) {
    std::string text;
    const auto words = 3 + rng.below(18);
    for (std::uint64_t w = 0; w < words; ++w) {
      text += (w == 0 ? "" : " ") + std::string(kWords[rng.below(std::size(kWords))]);
    }
    documents.push_back(std::move(text));
  }
  return documents;
}

void write_documents(const std::string& path, const std::vector<std::string>& documents) {
  std::string text;
  for (const std::string& document : documents) text += (text.empty() ? "" : "\n\n") + document;
  write_file_atomically(real_files(), path, text);
}

}  // namespace

TinyRun::TinyRun() {
  const auto documents = make_documents(120, 1);
  write_documents(*this / "text.txt", documents);
  write_documents(*this / "eval.txt", make_documents(12, 2));
  write_file_atomically(real_files(), *this / "llama.json", kLlama);
  write_file_atomically(real_files(), *this / "gpt2.json", kGpt2);
  std::size_t next = 0;
  const auto source = [&](std::string& text) {
    if (next == documents.size()) return false;
    text = documents[next++];
    return true;
  };
  BpeTrainOptions options;
  options.vocab_size = 300;
  options.special_tokens = {"<|endoftext|>"};
  options.named = {"", "<|endoftext|>", ""};
  train_bpe(source, options).save(real_files(), *this / "tok");
  setenv("LODE_CACHE", (*this / "cache").c_str(), 1);
}

Overrides TinyRun::arguments(const Overrides& overrides) const {
  const std::vector<std::pair<std::string, std::string>> defaults = {{"model_name_or_path", "@/llama.json"},
                                                                     {"train_from_scratch", "true"},
                                                                     {"tokenizer_name_or_path", "@/tok"},
                                                                     {"dataset", "@/text.txt"},
                                                                     {"document_separator", "\\n\\n"},
                                                                     {"cutoff_len", "32"},
                                                                     {"per_device_train_batch_size", "4"},
                                                                     {"learning_rate", "3e-3"},
                                                                     {"max_steps", "20"},
                                                                     {"logging_steps", "1"},
                                                                     {"save_steps", "1000"},
                                                                     {"report_to", "none"},
                                                                     {"num_threads", "1"},
                                                                     {"bf16", "false"},
                                                                     {"output_dir", "@/out"}};
  Overrides all;
  const auto set = [&all](const std::string& key, const std::string& text) {
    std::erase_if(all, [&](const std::string& earlier) { return earlier.starts_with(key + "="); });
    all.push_back(text);
  };
  for (const auto& [key, value] : defaults) set(key, key + "=" + value);
  for (const std::string& text : overrides) set(text.substr(0, text.find('=')), text);
  for (std::string& text : all) {
    for (auto at = text.find('@'); at != std::string::npos; at = text.find('@')) text.replace(at, 1, path());
  }
  return all;
}

TrainOutcome TinyRun::train(const Overrides& overrides, FileSystem& files) const {
  Log log(false);
  return lode::train(files, recipe(overrides), {"lode", "train"}, log);
}

std::string TinyRun::log(const std::string& output) const {
  return real_files().read(*this / (output + "/log.txt"));
}

std::string newest_checkpoint(const std::string& output_dir) {
  const auto list = list_checkpoints(real_files(), output_dir);
  return list.empty() ? "" : list.back().path;
}

std::vector<Json> metrics_of(const std::string& output_dir) {
  return read_metrics(real_files(), join_path(output_dir, "metrics.jsonl")).records;
}

RunTrace trace_of(const std::string& output_dir) {
  RunTrace trace;
  for (const Json& record : metrics_of(output_dir)) {
    Json kept = Json::object();
    for (const auto& [key, value] : record.as_object()) {
      if (!key.starts_with("time_")) kept[key] = value;
    }
    trace.metrics.push_back(kept.dump());
  }
  const std::string checkpoint = newest_checkpoint(output_dir);
  const std::string manifest = join_path(checkpoint, "manifest.json");
  trace.tensors = parse_json(real_files().read(manifest), manifest).at("tensors").dump();
  Json state = read_checkpoint_state(real_files(), checkpoint);
  state["recipe"] = nullptr;
  trace.state = state.dump();
  return trace;
}

std::vector<float> numbers_of(const std::string& safetensors) {
  const WeightSet weights(real_files(), safetensors);
  std::vector<float> numbers;
  for (const auto& [name, entry] : weights.tensors()) {
    const ConstView view = entry.file->view(*entry.info);
    for (std::int64_t r = 0; r < view.rows; ++r) {
      numbers.insert(numbers.end(), view.row<float>(r), view.row<float>(r) + view.cols);
    }
  }
  return numbers;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;  // NaN too
  }
  return largest;
}

void copy_tree(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

LodeProcess::LodeProcess(const TinyRun& run, const Overrides& overrides, std::uint64_t file_limit)
    : output_(run / "process.txt") {
  std::vector<std::string> words = {LODE_BINARY, "train"};
  for (const std::string& argument : run.arguments(overrides)) words.push_back(argument);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  id_ = ::fork();
  if (id_ != 0) return;
  const int file = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (::dup2(file, 1) < 0 || ::dup2(file, 2) < 0) ::_exit(126);
  if (file_limit > 0) {
    const rlimit limit{file_limit, file_limit};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

LodeProcess::~LodeProcess() {
  if (done_ || id_ <= 0) return;
  ::kill(id_, SIGKILL);
  wait();
}

void LodeProcess::kill(int signal) const {
  ::kill(id_, signal);
}

bool LodeProcess::running() {
  if (!done_) done_ = ::waitpid(id_, &status_, WNOHANG) == id_;
  return !done_;
}

int LodeProcess::wait() {
  if (!done_) done_ = ::waitpid(id_, &status_, 0) == id_;
  return WIFSIGNALED(status_) ? -WTERMSIG(status_) : WEXITSTATUS(status_);
}

bool lode_binary_is_built() {
  if (::access(LODE_BINARY, X_OK) == 0) return true;
  std::printf("not run: asset missing: %s\n", LODE_BINARY);
  return false;
}

bool wait_for_step(LodeProcess& process, const std::string& output_dir, std::int64_t step, double seconds) {
  const std::string file = join_path(output_dir, "metrics.jsonl");
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    const auto records = read_metrics(real_files(), file).records;
    if (!records.empty() && records.back().at("step").as_int() >= step) return true;
    if (!process.running()) return false;
    ::usleep(1000);
  }
  return false;
}

}  // namespace lode
