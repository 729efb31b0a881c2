// `coppice bench` and `coppice report`: an experiment from config to report, and its report again.
#include <fmt/core.h>

#include "experiments/bench.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/report_folder.h"

namespace coppice {
namespace {

struct BenchCommandOptions {
  std::string config;
  std::vector<std::string> set;
  std::string out;
  bool overwrite = false, resume = false, dry_run = false;
  std::string jobs = "1", cell, spec_bench_answers;
  std::vector<std::string> sbatch;
  std::string trace;
  template <class V>
  void visit(V& v) {
    v("config", config, "TOML file, or the manifest.json of an earlier run, which repeats it");
    v("set", set, "override a key, TABLE.KEY=VALUE or method.LABEL.KEY=VALUE; may be repeated");
    v("out", out, "folder of the results; empty: results/NAME");
    v("overwrite", overwrite, "replace what an earlier run left in the folder");
    v("resume", resume, "go on where an interrupted run of the same config ended");
    v("spec_bench_answers", spec_bench_answers,
      "folder for the answers in Spec-Bench's own format, a file for each method");
    v("dry_run", dry_run, "list a sweep's cells and how long each will take");
    v("jobs", jobs, "cells of a sweep at a time, each on cores of its own; or slurm");
    v("sbatch", sbatch, "with --jobs slurm: an option for sbatch; may be repeated");
    v("cell", cell, "run this cell of a sweep alone, by the name that --dry-run gives");
    v("trace", trace, "file: a timeline of all steps, for ui.perfetto.dev");
  }
};

struct ReportOptions {
  std::vector<std::string> run;
  std::string out, readme;
  template <class V>
  void visit(V& v) {
    v("run", run, "folder of a run or a sweep; with --out several");
    v("out", out, "folder for a page, plots (SVG), and tables as Markdown, CSV and LaTeX");
    v("readme", readme, "file whose table of this experiment is replaced");
  }
};

}  // namespace

int bench_command(Arguments args) {
  CommandLine line("coppice bench",
                   "Runs an experiment: every method against the baseline, prompt by prompt.\n"
                   "A config with a [sweep] table is run once for each of its cells; the same "
                   "command goes on\nwhere it was interrupted.",
                   "  coppice bench configs/quickstart.toml\n"
                   "  coppice bench configs/quickstart.toml --set sampling.temperature=1 \\\n"
                   "      --set bench.max_new_tokens=128 --out results/warm\n"
                   "  coppice bench results/quickstart/manifest.json --out results/again\n"
                   "  coppice bench spec.toml --set bench.turns=0 --spec-bench-answers answers\n"
                   "  coppice bench configs/bench/draft_length.toml --dry-run\n"
                   "  coppice bench configs/quickstart.toml --set sweep.threads=[1,2]\n"
                   "  coppice bench configs/bench/draft_length.toml --jobs slurm "
                   "--sbatch=--exclusive\n");
  line.add<BenchCommandOptions>("Options");
  line.positional("config");
  if (!line.parse(args)) return 0;
  const auto options = line.read<BenchCommandOptions>();
  if (options.config.empty()) throw Error("coppice bench: name a config file");
  if (options.overwrite && options.resume) {
    throw Error("coppice bench: --overwrite and --resume exclude each other; give one");
  }
  return run_bench({.config = options.config,
                    .overrides = options.set,
                    .out = options.out,
                    .existing = options.overwrite ? Existing::overwrite
                                : options.resume  ? Existing::resume
                                                  : Existing::refuse,
                    .spec_bench_answers = options.spec_bench_answers,
                    .trace = options.trace,
                    .jobs = options.jobs,
                    .sbatch = options.sbatch,
                    .dry_run = options.dry_run,
                    .cell = options.cell});
}

int report_command(Arguments args) {
  CommandLine line("coppice report",
                   "Writes summary.json and report.md of a run again, or a report with plots on "
                   "several.",
                   "  coppice report results/quickstart\n"
                   "  coppice report results/quickstart --readme README.md\n"
                   "  coppice report results/quickstart results/warm --out report\n");
  line.add<ReportOptions>("Options");
  line.positional("run", true);
  if (!line.parse(args)) return 0;
  const auto options = line.read<ReportOptions>();
  if (options.run.empty()) throw Error("coppice report: name the folder of a run");
  if (!options.out.empty()) {
    if (!options.readme.empty()) {
      throw Error("coppice report: --out and --readme exclude each other; give one");
    }
    write_report_folder(read_reported_runs(options.run), options.out);
    fmt::print("{}: report.html, report.md, plots/*.svg, tables/*.csv and *.tex written\n",
               options.out);
    return 0;
  }
  if (options.run.size() > 1) {
    throw Error("coppice report: several runs make one report in a folder; name it with --out");
  }
  write_report({.run = options.run[0], .readme = options.readme});
  fmt::print("{}: report written\n", options.run[0]);
  return 0;
}

}  // namespace coppice
