// The verbs of `lode`: each adds its sub-command, whose callback does the work and prints.
#pragma once

#include <span>

namespace CLI {
class App;
}

namespace lode {

void add_bench_verb(CLI::App& app);
void add_ckpt_verb(CLI::App& app);
void add_data_verb(CLI::App& app);
void add_doctor_verb(CLI::App& app);
void add_eval_verb(CLI::App& app);
void add_export_verb(CLI::App& app);
void add_generate_verb(CLI::App& app);
void add_model_verb(CLI::App& app);
void add_plan_verb(CLI::App& app);
void add_recipe_verb(CLI::App& app);
void add_tokenizer_verb(CLI::App& app);
// command_line is kept in the run's record.
void add_train_verb(CLI::App& app, std::span<char* const> command_line);

}  // namespace lode
