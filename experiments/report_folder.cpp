// See report_folder.h.
#include "experiments/report_folder.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "experiments/page.h"
#include "experiments/report.h"
#include "experiments/report_csv.h"
#include "experiments/report_plots.h"
#include "experiments/run_folder.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpecBenchNote =
    "Spec-Bench's speedup is the mean over questions of tokens per second, prefill included, over "
    "the baseline's mean (evaluation/speed.py of github.com/hemingkx/Spec-Bench). It weighs every "
    "question alike, where ours weighs every token alike, and counts the prompt's pass, which no "
    "method shortens. Spec-Bench tokenizes the baseline's text anew to count its tokens; here both "
    "sides count the ids that were emitted.";

/// Tables of several runs in one, under a column that names the run; of one run as it is.
template <class Make>
Table joined(std::span<const ReportedRun> runs, Make&& make) {
  if (runs.size() == 1) return make(runs[0]);
  Table all = make(runs[0]).under("run", runs[0].label);
  for (const ReportedRun& run : runs.subspan(1)) all.append(make(run).under("run", run.label));
  return all;
}

Table spec_bench_table(const ReportedRun& run) {
  Table table({"task", "method", "Spec-Bench's speedup", "ours"}, 2);
  for (const SpecBenchSpeedup& at : spec_bench_speedups(run)) {
    const auto method = std::find_if(run.summary.methods.begin(), run.summary.methods.end(),
                                     [&](const auto& m) { return m.arm.name == at.arm; });
    std::optional<Ratio> ours = method->speedup;
    if (at.task != "overall") {
      const auto found = method->by_category.find(at.task);
      ours = found == method->by_category.end() ? std::nullopt : found->second.speedup;
    }
    table.add({at.task, at.arm, fmt::format("{:.2f}", at.value),
               ours ? fmt::format("{:.2f}", ours->value) : "n/a"});
  }
  return table;
}

/// Every table of the report, the headline first.
std::vector<ReportSection> all_sections(std::span<const ReportedRun> runs) {
  std::vector<ReportSection> sections;
  sections.push_back(
      {"methods", "Methods", joined(runs, [](const auto& run) { return headline(run.summary); })});
  Table spec = joined(runs, spec_bench_table);
  if (!spec.empty()) {
    sections.push_back({"spec_bench", "Spec-Bench's own speedup", std::move(spec)});
  }
  // Columns of the others depend on the run: a section each.
  for (const ReportedRun& run : runs) {
    for (ReportSection& section : report_sections(run.summary)) {
      if (runs.size() > 1) {
        section.title = fmt::format("{}: {}", run.label, section.title);
        section.name = fmt::format("{}_{}", &run - runs.data() + 1, section.name);
      }
      sections.push_back(std::move(section));
    }
  }
  return sections;
}

std::string title_of(std::span<const ReportedRun> runs) {
  std::vector<std::string> labels;
  for (const ReportedRun& run : runs) labels.push_back(run.label);
  return fmt::format("{}", fmt::join(labels, "; "));
}

std::string settings(std::span<const ReportedRun> runs) {
  std::string out;
  for (const ReportedRun& run : runs) {
    out += (runs.size() > 1 ? run.label + ": " : "") + setting_text(run.summary, run.manifest);
    out += "\n";
  }
  return out;
}

std::string markdown(std::span<const ReportedRun> runs, std::span<const ReportSection> sections,
                     std::span<const Plot> plots) {
  std::string out = fmt::format("# {}\n\n{}", title_of(runs), settings(runs));
  for (const ReportSection& section : sections) {
    out += fmt::format("\n## {}\n\n{}", section.title, section.table.markdown());
    if (section.name == "spec_bench") out += fmt::format("\n{}\n", kSpecBenchNote);
  }
  out += "\n## Plots\n\n";
  for (const Plot& plot : plots) {
    out += fmt::format("![{}](plots/{}.svg)\n\n", plot.title, plot.name);
  }
  return out + fmt::format("## Definitions\n\n{}", report_definitions());
}

/// Paragraphs with **strong** and `code`.
std::string html_of(std::string_view text) {
  const auto paired = [](std::string html, std::string_view mark, std::string_view tag) {
    bool open = false;
    for (size_t at = 0; (at = html.find(mark, at)) != std::string::npos; open = !open) {
      const std::string with = fmt::format("<{}{}>", open ? "/" : "", tag);
      html.replace(at, mark.size(), with);
      at += with.size();
    }
    return html;
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    out += fmt::format(
        "<p>{}</p>\n",
        paired(paired(escape_html(text.substr(at, end - at)), "**", "strong"), "`", "code"));
    at = end + 2;
  }
  return out;
}

std::string page(std::span<const ReportedRun> runs, std::span<const ReportSection> sections,
                 std::span<const Plot> plots, const fs::path& out) {
  std::string figures, tables;
  for (const Plot& plot : plots) {
    std::string svg = read_whole_file(out / "plots" / (plot.name + ".svg"));
    svg.erase(0, svg.find("<svg"));
    figures += fmt::format(
        "<figure class=\"panel\" style=\"--width:{}px\"><figcaption>{}</figcaption>\n{}</figure>\n",
        plot.width, escape_html(plot.title), svg);
  }
  for (const ReportSection& section : sections) {
    if (section.name == "methods") continue;  // stands above the plots
    tables += fmt::format(
        "<section class=\"panel\"><h2>{0}</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" "
        "aria-label=\"{0}\">{1}</div>{2}</section>\n",
        escape_html(section.title), section.table.html(),
        section.name == "spec_bench" ? html_of(kSpecBenchNote) : "");
  }
  return fill_page(page_part("report.html"), {{"title", escape_html(title_of(runs))},
                                              {"setting", html_of(settings(runs))},
                                              {"headline", sections[0].table.html()},
                                              {"figures", figures},
                                              {"tables", tables},
                                              {"definitions", html_of(report_definitions())}});
}

}  // namespace

void write_report_folder(std::span<const ReportedRun> runs, const fs::path& out) {
  const std::vector<Plot> plots = report_plots(runs);
  draw_plots(out / "plots", plots);
  std::error_code error;
  fs::create_directories(out / "tables", error);
  if (error) throw Failure("{}: cannot be made: {}", (out / "tables").string(), error.message());
  for (const CsvFile& file : report_csv(runs)) {
    write_whole_file(out / "tables" / file.name, file.text);
  }
  const std::vector<ReportSection> sections = all_sections(runs);
  for (const ReportSection& section : sections) {
    write_whole_file(out / "tables" / (section.name + ".tex"), section.table.latex());
  }
  write_whole_file(out / "report.md", markdown(runs, sections, plots));
  write_whole_file(out / "report.html", page(runs, sections, plots, out));
}

}  // namespace coppice
