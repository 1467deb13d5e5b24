// The special tokens around a text: tokenizer.json's "post_processor".
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/parallel.h"

namespace lode::text {

struct PostProcessor {
  std::vector<std::int32_t> prefix, suffix;

  // `config` may be null: nothing is added. `is_token` tells whether an id has a token; `what` names the
  // file. Throws Error(data) for what is not supported.
  PostProcessor(const Json& config, FunctionRef<bool(std::int64_t)> is_token, const std::string& what);

 private:
  void add(const Json& config, FunctionRef<bool(std::int64_t)> is_token, const std::string& what);
  void add_template(const Json& config, FunctionRef<bool(std::int64_t)> is_token, const std::string& what);
  void add_pair(const Json& config, const std::string& where, FunctionRef<bool(std::int64_t)> is_token,
                const std::string& what);
};

}  // namespace lode::text
