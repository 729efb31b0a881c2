// `coppice worker`: measures what standard input asks for, line by line; see worker.h.
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/model_files.h"
#include "experiments/worker.h"

namespace coppice {
namespace {

struct WorkerOptions {
  std::string model, target;
  int threads = 0;

  template <class V>
  void visit(V& v) {
    v("model", model, kModelHelp);
    v("target", target, "instruction set; empty: the best of this machine");
    v("threads", threads, "0: one per core", Range{0, 1024});
  }
};

}  // namespace

int worker_command(Arguments args) {
  CommandLine line("coppice worker",
                   "Measures what each line of standard input asks for, as experiments/peers does.",
                   "  echo '{\"measure\": \"rows\", \"context\": [1, 2], \"rows\": [1, 8], "
                   "\"repeats\": 5}' |\n      coppice worker --model smollm2\n");
  line.add<WorkerOptions>("Options");
  if (!line.parse(args)) return 0;
  const auto options = line.read<WorkerOptions>();
  if (options.model.empty()) throw Error("coppice worker: --model is missing");
  Worker worker(find_model(options.model, {}),
                {.name = "cpu", .threads = options.threads, .target = options.target});
  for (std::string text; std::getline(std::cin, text);) {
    const auto request = nlohmann::json::parse(text, nullptr, false);
    fmt::print("{}\n", request.is_discarded() ? R"({"error":"not a JSON object"})"
                                              : worker.answer(request).dump());
  }
  return 0;
}

}  // namespace coppice
