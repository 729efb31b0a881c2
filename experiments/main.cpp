// The `coppice` program: `coppice COMMAND [options]`. Exit codes: 0 done, 1 the world failed or a
// check did not hold, 2 the user can mend it.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "experiments/commands.h"
#include "kernels/base/error.h"

namespace {

using coppice::Command;
using coppice::Error;

std::string overview() {
  std::string text =
      "Coppice measures and proves speculative decoding of language models.\n\n"
      "usage: coppice COMMAND [options]\n\ncommands:\n";
  for (const Command& command : coppice::commands()) {
    text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  }
  return text +
         "\n`coppice COMMAND --help` shows a command's options and examples. Start with:\n"
         "  coppice generate --model smollm2 --prompt \"Why is the sky blue?\"\n";
}

int run(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    fmt::print("{}", overview());
    return args.empty() ? 2 : 0;
  }
  if (args[0] == "--version") {
    fmt::print("coppice {}\n", COPPICE_VERSION);
    return 0;
  }
  for (const Command& command : coppice::commands()) {
    if (command.name == args[0]) return command.run(std::span(args).subspan(1));
  }
  throw Error("unknown command '{}'; `coppice --help` lists them", args[0]);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line is seen when it is done, through a pipe too
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    fmt::print(stderr, "coppice: {}\n", error.what());
    return 2;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "coppice: {}\n", failure.what());
    return 1;
  }
}
