// `coppice roofline`: the machine's limits, and how near to them a model's steps come.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/model_files.h"
#include "experiments/roofline.h"

namespace coppice {
namespace {

struct RooflineOptions {
  std::string model, target;
  int threads = 0;
  std::vector<int> contexts = RooflineRequest().contexts;
  std::vector<int> rows = RooflineRequest().rows;
  std::vector<int> read_mib = RooflineRequest().read_mib;
  int rounds = RooflineRequest().rounds;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("model", model, "also time a model's steps: GGUF file, or a name of experiments/models.sh");
    v("target", target, "instruction set; empty: the best of this machine");
    v("threads", threads, "0: one per core", Range{0, 1024});
    v("contexts", contexts, "tokens in the cache before a step", Range{1, 1e6});
    v("rows", rows, "rows of a step; 1 is always among them", Range{1, 512});
    v("read_mib", read_mib, "buffers whose reading is timed, in MiB", Range{1, 1 << 16});
    v("rounds", rounds, "times that every figure is measured, in turn", Range{1, 1000});
    v("json", json, "print one JSON object");
  }
};

}  // namespace

int roofline_command(Arguments args) {
  CommandLine line("coppice roofline",
                   "Measures the machine's limits, and a model's steps against them.",
                   "  coppice roofline\n"
                   "  coppice roofline --model smollm2\n"
                   "  coppice roofline --model smollm2 --target avx2 --contexts 64 --rows 1,4,16 "
                   "--json\n");
  line.add<RooflineOptions>("Options");
  if (!line.parse(args)) return 0;
  const auto options = line.read<RooflineOptions>();
  RooflineRequest request;
  request.machine = {.name = "cpu", .threads = options.threads, .target = options.target};
  if (!options.model.empty()) request.model = find_model(options.model, {});
  request.contexts = options.contexts;
  request.rows = options.rows;
  request.read_mib = options.read_mib;
  request.rounds = options.rounds;
  const nlohmann::ordered_json record = measure_roofline(request);
  fmt::print("{}", options.json ? record.dump() + "\n" : roofline_text(record));
  return 0;
}

}  // namespace coppice
