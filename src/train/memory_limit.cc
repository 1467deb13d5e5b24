// What a recipe's memory_limit allows, and the refusal of a plan beyond it.
#include "core/fail.h"
#include "observe/system.h"
#include "train/activation_auto.h"
#include "train/memory_plan.h"

namespace lode {

std::size_t memory_limit_bytes(const std::string& text) {
  if (text.empty() || text == "none") return 0;
  const SystemInfo system = read_system();
  if (text == "auto") return static_cast<std::size_t>(0.95 * static_cast<double>(system.available_memory));
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (number > 0 && number <= 100 && std::string_view(end) == "%")
    return static_cast<std::size_t>(number / 100 * static_cast<double>(system.total_memory));
  // A bare number is more likely meant as gigabytes than as bytes.
  if (number > 0 && text.back() == 'B' && text.find(' ') == std::string::npos) {
    try {
      return parse_bytes(text);
    } catch (const Error&) {
      // Said below with all that is allowed.
    }
  }
  fail(ErrorKind::usage,
       "expected a size (6GiB, 800MB), a share of this machine's memory (80%), auto or none; "
       "found \"{}\"",
       text);
}

std::size_t tensor_limit(std::size_t process_limit) {
  if (process_limit == 0) return 0;
  constexpr std::size_t kOthers = MemoryPlan::kProgram + MemoryPlan::kRoom;
  return process_limit > kOthers ? process_limit - kOthers : 1;
}

void require_fits(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                  const std::string& model_path, const DataSets& data, const MemoryPlan& plan,
                  std::size_t limit) {
  if (limit == 0 || plan.peak() <= limit) return;
  std::string text =
      format("the run needs {}, memory_limit allows {}", format_bytes(plan.peak()), format_bytes(limit));
  for (const std::string& line : plan.lines()) text += "\n  " + line;
  for (const std::string& line :
       fix_lines(find_memory_fixes(files, recipe, parts, model_path, data, limit), limit))
    text += "\n" + line;
  fail(ErrorKind::memory, "{}", text);
}

}  // namespace lode
