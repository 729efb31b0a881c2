// report.md, and the table of a README, from a run's summary and manifest.
//
//   write_whole(folder / "report.md", make_report(summary, manifest));
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "experiments/summary.h"

namespace coppice {

/// The headline table: one line a method, speedup with its 95 % interval.
std::string headline_table(const Summary& summary);
/// The whole report in Markdown.
std::string make_report(const Summary& summary, const nlohmann::ordered_json& manifest);
/// `readme` with what stands between `<!-- table:NAME -->` and `<!-- /table -->` replaced. Throws
/// Error naming the marker that is missing.
std::string replace_table(std::string_view readme, std::string_view name, std::string_view table);

}  // namespace coppice
