#include "observe/run_record.h"

#include <cerrno>
#include <cmath>

#include "gtest/gtest.h"
#include "temp_folder.h"

namespace lode {
namespace {

RunInfo small_run() {
  RunInfo info;
  info.command_line = {"lode",      "train", "recipe.yaml",       "hub_token=abc",
                       "--api-key", "xyz",   "learning_rate=1e-3"};
  info.output_dir = "out/small";
  info.task = "pretrain";
  info.parameters = 10'100'000;
  info.trainable_parameters = 10'100'000;
  info.flops_per_token = 6e7;
  info.peak_flops = 6e11;
  info.total_steps = 100;
  info.model = Json::object({{"model_type", "llama"}, {"hidden_size", 256}});
  info.data = Json::object({{"fingerprint", "00ff"}, {"documents", 66}});
  info.tokenizer = Json::object({{"fingerprint", "abcd"}, {"vocab_size", 4096}});
  info.batch = Json::object({{"tokens_a_step", 8192}});
  info.packing = Json::object({{"density", 0.991}});
  info.recipe = Json::object({{"learning_rate", 1e-3}, {"hub_token", "abc"}});
  info.memory_plan = {{"weights", 40 << 20}, {"optimizer", 80 << 20}};
  return info;
}

SystemInfo small_system() {
  SystemInfo system;
  system.cpu_model = "Test CPU";
  system.cores = 4;
  system.usable_cores = 2;
  system.total_memory = std::uint64_t{8} << 30;
  system.available_memory = std::uint64_t{4} << 30;
  return system;
}

void set_facts(Facts& facts) {
  facts.set({"precision", "bf16", "f32", "no bf16 products on this processor", true});
  facts.set({"attention", "flash", "flash", "as asked", false});
  facts.count("matmul hits", 12);
}

RunEnd small_end() {
  RunEnd end;
  end.flops = 3e12;
  end.reason = "done";
  end.seconds = 10;
  end.step = 100;
  end.tokens = 50'000;
  end.samples = 500;
  end.results = Json::object({{"best_checkpoint", "checkpoint-100"}});
  return end;
}

TEST(RunRecord, StartAndEnd) {
  TempFolder folder;
  Facts facts;
  set_facts(facts);
  MemoryUse memory;
  memory.peak[0] = 1000;
  RunRecord record(real_files(), folder / "run.json", small_run(), small_system());
  record.write_start(facts, memory);
  Json run = parse_json(real_files().read(folder / "run.json"), "run.json");
  EXPECT_EQ(run.at("status").as_string(), "running");
  EXPECT_TRUE(run.at("exit_status").is_null());
  EXPECT_EQ(run.at("optimisations").as_array().at(0).at("chosen").as_string(), "f32");
  EXPECT_TRUE(run.at("optimisations").as_array().at(0).at("substituted").as_bool());
  EXPECT_EQ(run.at("data").at("fingerprint").as_string(), "00ff");
  EXPECT_EQ(run.at("tokenizer").at("fingerprint").as_string(), "abcd");
  EXPECT_EQ(run.at("hardware").at("usable_cores").as_int(), 2);
  EXPECT_EQ(run.at("model").at("parameters").as_int(), 10'100'000);
  EXPECT_EQ(run.at("memory").at("by_tag").at("weights").at("peak").as_int(), 1000);
  EXPECT_EQ(run.at("memory_plan").at("optimizer").as_int(), 80 << 20);
  EXPECT_FALSE(run.at("build").at("version").as_string().empty());
  EXPECT_FALSE(run.at("build").at("flags").as_string().empty());

  record.write_end(facts, memory, small_end());
  run = parse_json(real_files().read(folder / "run.json"), "run.json");
  EXPECT_EQ(run.at("status").as_string(), "done");
  EXPECT_EQ(run.at("exit_status").as_int(), 0);
  EXPECT_EQ(run.at("counters").at("matmul hits").as_int(), 12);
  EXPECT_DOUBLE_EQ(run.at("training").at("mfu").as_double(), 0.5);
  EXPECT_DOUBLE_EQ(run.at("training").at("tokens_per_second").as_double(), 5000);
  EXPECT_EQ(run.at("results").at("best_checkpoint").as_string(), "checkpoint-100");
  EXPECT_EQ(run.at("ended").as_string().size(), 20U);
}

TEST(RunRecord, NoSecretIsWritten) {
  RunInfo info = small_run();
  info.command_line.push_back("password=hunter2");
  info.recipe["nested"] = Json::object({{"secret_key", "tophat"}});
  TempFolder folder;
  RunRecord(real_files(), folder / "run.json", info, small_system()).write_start(Facts(), MemoryUse());
  const std::string text = real_files().read(folder / "run.json");
  for (const char* secret : {"abc\"", "xyz", "hunter2", "tophat"})
    EXPECT_EQ(text.find(secret), std::string::npos) << secret;
  EXPECT_NE(text.find("hub_token=***"), std::string::npos);
  EXPECT_NE(text.find("learning_rate=1e-3"), std::string::npos);
}

TEST(RunRecord, AResumeKeepsWhatWentBefore) {
  TempFolder folder;
  const std::string path = folder / "run.json";
  RunEnd end = small_end();
  end.exit_status = 75;
  end.reason = "preempted";
  RunRecord(real_files(), path, small_run(), small_system()).write_end(Facts(), MemoryUse(), end);
  RunInfo resumed = small_run();
  resumed.start_step = 50;
  RunRecord(real_files(), path, resumed, small_system()).write_start(Facts(), MemoryUse());
  RunRecord(real_files(), path, resumed, small_system()).write_start(Facts(), MemoryUse());
  const Json run = parse_json(real_files().read(path), "run.json");
  ASSERT_EQ(run.at("earlier").size(), 2U);
  EXPECT_EQ(run.at("earlier").as_array()[0].at("reason").as_string(), "preempted");
  EXPECT_EQ(run.at("earlier").as_array()[1].at("status").as_string(), "running");  // was killed

  real_files().create(path)->write("{torn");
  RunRecord(real_files(), path, resumed, small_system()).write_start(Facts(), MemoryUse());
  EXPECT_EQ(parse_json(real_files().read(path), "run.json").find("earlier"), nullptr);
}

TEST(RunRecord, AFullDiskKeepsTheOldRecord) {
  TempFolder folder;
  const std::string path = folder / "run.json";
  RunRecord(real_files(), path, small_run(), small_system()).write_start(Facts(), MemoryUse());
  const std::string before = real_files().read(path);
  FailingFiles files(real_files(), 2, ENOSPC);
  RunRecord record(files, path, small_run(), small_system());
  EXPECT_EQ(kind_of([&] { record.write_end(Facts(), MemoryUse(), small_end()); }), ErrorKind::data);
  EXPECT_EQ(real_files().read(path), before);
}

TEST(Mfu, UnknownWithoutAPeakOrTime) {
  RunInfo info = small_run();
  RunEnd end = small_end();
  EXPECT_DOUBLE_EQ(mean_mfu(info, end), 0.5);
  end.seconds = 0;
  EXPECT_TRUE(std::isnan(mean_mfu(info, end)));
  end.seconds = 1;
  info.peak_flops = 0;
  EXPECT_TRUE(std::isnan(mean_mfu(info, end)));
}

TEST(Banner, ShowsWhatRunsAndWhy) {
  Facts facts;
  set_facts(facts);
  const std::string text = banner(small_run(), small_system(), facts);
  for (const char* part : {"pretrain in out/small", "Test CPU", "2 of 4", "model type       llama",
                           "10.1M (10.1M trainable)", "documents    66", "tokens a step  8192",
                           "optimisations\n", "memory plan\n", "together   120.0 MiB", "density  0.991"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const auto line_of = [&](std::string_view word) {
    const std::size_t at = text.find(word), begin = text.rfind('\n', at) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  };
  EXPECT_EQ(line_of("precision"), "  !  precision  bf16   f32     no bf16 products on this processor");
  EXPECT_EQ(line_of("attention"), "     attention  flash  flash   as asked");
}

TEST(Banner, LineBreaksInNamesStayInTheirCells) {
  Facts facts;
  facts.set({"a\nb", "x\x1b[31m", "y", "z", false});
  const std::string text = banner(small_run(), small_system(), facts);
  EXPECT_NE(text.find("a b  x [31m"), std::string::npos) << text;
}

TEST(Summary, ShowsResults) {
  Facts facts;
  set_facts(facts);
  MemoryUse memory;
  memory.peak[3] = 2048;
  memory.total_peak = 2048;
  const std::string text = summary(small_run(), small_end(), facts, memory);
  for (const char* part :
       {"finished\n", "100 of 100", "5.0k tokens/s", "50 samples/s", "50.0 %", "600 GFLOP/s",
        "checkpoint-100", "out/small", "optimizer", "2.00 KiB", "matmul hits  12"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  RunEnd end = small_end();
  end.exit_status = 5;
  end.reason = "too many bad steps";
  end.lost_metrics = 3;
  const std::string failed = summary(small_run(), end, facts, memory);
  EXPECT_TRUE(failed.starts_with("ended early: too many bad steps\n"));
  EXPECT_NE(failed.find("metrics lines lost"), std::string::npos);
}

TEST(Secrets, Names) {
  for (const char* name : {"HF_TOKEN", "hub_token", "api-key", "apikey", "WANDB_API_KEY", "password",
                           "db.password2", "client_secret", "aws_credentials", "--token", "authToken"}) {
    EXPECT_TRUE(is_secret_name(name)) << name;
  }
  for (const char* name :
       {"", "tokenizer_path", "max_tokens", "generate_max_new_tokens", "keys", "learning_rate", "="}) {
    EXPECT_FALSE(is_secret_name(name)) << name;
  }
}

TEST(Secrets, CommandLines) {
  const std::vector<std::string> in = {"lode",
                                       "hub_token=a=b",
                                       "--password",
                                       "pw",
                                       "--api-key=k",
                                       "max_tokens=5",
                                       "dataset=https://u:p@h/x@y",
                                       "hf_AbCdEfGhIjKlMnOpQrStUv",
                                       "--token",
                                       "--strict",
                                       "x=hf_AbCdEfGhIjKlMnOpQrStUv",
                                       "hf_short",
                                       "https://h/a@b"};
  const std::vector<std::string> out = {"lode",
                                        "hub_token=***",
                                        "--password",
                                        "***",
                                        "--api-key=***",
                                        "max_tokens=5",
                                        "dataset=https://***@h/x@y",
                                        "***",
                                        "--token",
                                        "--strict",
                                        "x=***",
                                        "hf_short",
                                        "https://h/a@b"};
  EXPECT_EQ(mask_secrets(in), out);
  EXPECT_TRUE(mask_secrets(std::vector<std::string>{}).empty());
}

TEST(Secrets, ValuesInRecords) {
  const Json in = parse_json(
      R"({"hub_token": "x", "token": "", "pad_token": 3, "list": [{"key": ["a"]}], "n": 1.5})", "t");
  EXPECT_EQ(mask_secrets(in).dump(),
            R"({"hub_token": "***", "token": "", "pad_token": 3, "list": [{"key": "***"}], "n": 1.5})");
}

}  // namespace
}  // namespace lode
