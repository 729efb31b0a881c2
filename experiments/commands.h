// The commands of the program, each a function of its arguments that returns the exit code. Errors
// are thrown: main() prints them as one line.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace coppice {

using Arguments = std::span<const std::string>;

struct Command {
  std::string_view name, summary;
  int (*run)(Arguments args);
};
std::span<const Command> commands();

int generate_command(Arguments args);
int bench_command(Arguments args);
int report_command(Arguments args);
int compare_command(Arguments args);
int reproduce_command(Arguments args);
int quality_command(Arguments args);
int verify_command(Arguments args);
int train_command(Arguments args);
int tune_command(Arguments args);
int perplexity_command(Arguments args);
int tokenize_command(Arguments args);
int inspect_command(Arguments args);
int methods_command(Arguments args);
int datastore_command(Arguments args);
int explain_command(Arguments args);
int replay_command(Arguments args);
int roofline_command(Arguments args);
int simulate_command(Arguments args);
int worker_command(Arguments args);

}  // namespace coppice
