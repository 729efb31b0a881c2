// report.md, and the table of a README, from a run's summary and manifest.
//
//   write_whole(folder / "report.md", make_report(summary, manifest));
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "experiments/summary.h"
#include "experiments/table.h"

namespace coppice {

/// One line a method, speedup with its 95 % interval.
Table headline(const Summary& summary);
/// The same in Markdown.
std::string headline_table(const Summary& summary);
struct ReportSection {
  std::string name, title;  // "acceptance", "Acceptance by draft position"
  Table table;
};
/// The tables beside the headline, those that would be empty left out.
std::vector<ReportSection> report_sections(const Summary& summary);
/// Model, machine and what was decoded, in a line.
std::string setting_text(const Summary& summary, const nlohmann::ordered_json& manifest);
/// What every figure means, in Markdown.
std::string_view report_definitions();
/// The whole report in Markdown.
std::string make_report(const Summary& summary, const nlohmann::ordered_json& manifest);
/// `readme` with what stands between `<!-- table:NAME -->` and `<!-- /table -->` replaced. Throws
/// Error naming the marker that is missing.
std::string replace_table(std::string_view readme, std::string_view name, std::string_view table);

}  // namespace coppice
