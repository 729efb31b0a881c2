// `coppice compare` and `coppice reproduce`: two runs side by side, and a run made again from its
// manifest and judged against what it was.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/model_file.h"
#include "experiments/bench.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/compare.h"
#include "experiments/model_files.h"
#include "experiments/run_rows.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

struct CompareOptions {
  std::vector<std::string> runs;
  template <class V>
  void visit(V& v) {
    v("runs", runs, "folders of two runs");
  }
};

struct ReproduceOptions {
  std::string run, out;
  bool overwrite = false;
  template <class V>
  void visit(V& v) {
    v("run", run, "folder of the run");
    v("out", out, "folder of the new one; empty: the run's, with -again behind it");
    v("overwrite", overwrite, "replace what an earlier run left in the new folder");
  }
};

/// Throws Error when the model here is another than that of the run.
void check_model(const BenchConfig& config, const nlohmann::ordered_json& manifest) {
  const fs::path model = find_model(config.model.path, config.folder);
  const std::string wanted = manifest.at("model").value("sha256", "");
  if (identify_model(model).sha256 == wanted) return;
  throw Error("{}: is not the model of the run, whose SHA-256 is {}; fetch that one",
              model.string(), wanted);
}

}  // namespace

int compare_command(Arguments args) {
  CommandLine line("coppice compare",
                   "Says what changed between two runs, and whether it made a difference.",
                   "  coppice compare results/before results/after\n"
                   "  coppice compare results/sweep/cells/41aa047ca151 "
                   "results/sweep/cells/dfacd625c1b3\n");
  line.add<CompareOptions>("Options");
  line.positional("runs", true);
  if (!line.parse(args)) return 0;
  const auto options = line.read<CompareOptions>();
  if (options.runs.size() != 2) throw Error("coppice compare: name the folders of two runs");
  fmt::print("{}", comparison_text(compare_runs(options.runs[0], options.runs[1])));
  return 0;
}

int reproduce_command(Arguments args) {
  CommandLine line("coppice reproduce",
                   "Makes a run again from its manifest, and judges whether the two agree.",
                   "  coppice reproduce results/quickstart\n"
                   "  coppice reproduce results/quickstart --out /tmp/again\n");
  line.add<ReproduceOptions>("Options");
  line.positional("run");
  if (!line.parse(args)) return 0;
  const auto options = line.read<ReproduceOptions>();
  if (options.run.empty()) throw Error("coppice reproduce: name the folder of a run");
  const fs::path run = fs::path(options.run).lexically_normal();
  const std::string folder = (run.has_filename() ? run : run.parent_path()).string();
  const fs::path out = options.out.empty() ? fs::path(folder + "-again") : fs::path(options.out);
  const auto manifest = read_manifest(run);
  const BenchConfig config = read_bench_config(run / "manifest.json", {});
  check_model(config, manifest);
  const int code =
      run_bench(config, out, options.overwrite ? Existing::overwrite : Existing::refuse);
  if (code == kInterruptedStatus) return code;

  const Comparison comparison = compare_runs(run, out);
  fmt::print("\n{}\n", comparison_text(comparison));
  const auto contradictions = disagreements(comparison);
  for (const std::string& text : contradictions) fmt::print("disagrees: {}\n", text);
  fmt::print("{}\n",
             contradictions.empty() ? "reproduced: the runs agree" : "NOT reproduced: see above");
  return contradictions.empty() ? code : 1;
}

}  // namespace coppice
