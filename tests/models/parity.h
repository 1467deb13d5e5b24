// Collects how near our numbers are to Hugging Face's and prints one table when the program ends.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/format.h"

namespace lode::test {

class Parity : public testing::Environment {
 public:
  static Parity& table() {
    static auto* const environment =
        static_cast<Parity*>(testing::AddGlobalTestEnvironment(new Parity));  // owned by the framework
    return *environment;
  }
  void add(std::string row) { rows_.push_back(std::move(row)); }
  void TearDown() override {
    if (rows_.empty()) return;
    std::string text =
        "| model | against | f32 logits | f32 loss | f32 gradients | bf16 loss | bf16 gradients |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n";
    for (const std::string& row : rows_) text += row + "\n";
    std::fputs(text.c_str(), stdout);
    rows_.clear();
  }

 private:
  std::vector<std::string> rows_;
};

}  // namespace lode::test
