// See code_tasks.h.
#include "experiments/code_tasks.h"

#include <fmt/format.h>

#include <algorithm>

namespace coppice {

std::string code_of(std::string_view answer) {
  constexpr std::string_view kFence = "```";
  const size_t open = answer.find(kFence);
  if (open == std::string_view::npos) return std::string(answer);
  const size_t begin = std::min(answer.find('\n', open), answer.size());  // behind "```python"
  const size_t end = std::min(answer.find(kFence, begin), answer.size());
  return std::string(answer.substr(begin, end - begin));
}

std::string program_for(const CodeTask& task, std::string_view answer) {
  const std::string code = code_of(answer);
  const std::string function = fmt::format("def {}(", task.entry_point);
  std::string before = task.prefix;
  // An answer that defines the whole function needs what stands before it alone: imports, helpers.
  if (!task.entry_point.empty() && code.find(function) != std::string::npos) {
    before = before.substr(0, before.find(function));
  }
  return fmt::format("{}{}\n{}\n", before, code, task.test);
}

}  // namespace coppice
