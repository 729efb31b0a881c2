// See sweep_report.h.
#include "experiments/sweep_report.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "experiments/run_folder.h"
#include "experiments/statistics.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

ordered_json read_json(const fs::path& path) {
  ordered_json read = ordered_json::parse(read_whole_file(path), nullptr, false);
  if (read.is_discarded()) throw Error("{}: is no JSON; run the sweep again", path.string());
  return read;
}

ordered_json read_record(const fs::path& sweep) {
  if (!fs::exists(sweep / "sweep.json")) {
    throw Error("{}: holds no sweep.json; give the folder of a sweep", sweep.string());
  }
  return read_json(sweep / "sweep.json");
}

std::optional<double> figure(const ordered_json& value) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::string speedup_text(const ordered_json& speedup) {
  const std::string value = number_text(figure(speedup.at("value")), 2);
  const ordered_json& interval = speedup.at("ci95");
  if (!interval.is_array()) return value;
  return fmt::format("{} [{:.2f}, {:.2f}]", value, interval[0].get<double>(),
                     interval[1].get<double>());
}

/// Whether the method's own column would say what an axis says already.
bool has_method_axis(const ordered_json& record) {
  for (const auto& axis : record.at("axes")) {
    if (axis.at("path") == "bench.methods") return true;
  }
  return false;
}

void add_rows(Table& table, const ordered_json& cell, const ordered_json& summary,
              bool names_method) {
  for (const auto& method : summary.at("methods")) {
    std::vector<std::string> row;
    for (const auto& value : cell.at("values")) row.push_back(value.get<std::string>());
    if (names_method) row.push_back(method.at("name").get<std::string>());
    const bool valid = method.value("valid", true), lossless = method.at("lossless").get<bool>();
    row.push_back(method.at("rule").get<std::string>() + (!valid      ? " (invalid)"
                                                          : !lossless ? " (lossy)"
                                                                      : ""));
    row.push_back(speedup_text(method.at("speedup")));
    row.push_back(number_text(figure(method.at("decode_tokens_per_s")), 1));
    row.push_back(number_text(figure(summary.at("baseline").at("decode_tokens_per_s")), 1));
    row.push_back(number_text(figure(method.at("tokens_per_step")), 2));
    row.push_back(number_text(figure(method.at("rows_per_step")), 2));
    row.push_back(percent_text(figure(method.at("identical_rate"))));
    table.add(std::move(row));
  }
}

}  // namespace

std::string sweep_name(const fs::path& sweep) {
  return read_record(sweep).at("name").get<std::string>();
}

Table sweep_table(const fs::path& sweep) {
  const ordered_json record = read_record(sweep);
  const bool names_method = !has_method_axis(record);
  std::vector<std::string> header;
  for (const auto& axis : record.at("axes")) header.push_back(axis.at("key").get<std::string>());
  if (names_method) header.push_back("method");
  header.push_back("rule");
  const size_t text_columns = header.size();
  for (const char* column : {"speedup [95 %]", "tokens/s", "baseline's", "tokens per step",
                             "rows per step", "identical"}) {
    header.push_back(column);
  }
  Table table(std::move(header), text_columns);
  for (const auto& cell : record.at("cells")) {
    if (cell.at("status") != "done") continue;
    const fs::path folder = sweep / "cells" / cell.at("cell").get<std::string>();
    add_rows(table, cell, read_json(folder / "summary.json"), names_method);
  }
  return table;
}

std::string sweep_report(const fs::path& sweep) {
  const ordered_json record = read_record(sweep);
  std::set<std::string> models, machines;
  std::string failed, moved;
  int done = 0;
  for (const auto& cell : record.at("cells")) {
    const std::string hash = cell.at("cell");
    std::vector<std::string> parts;
    for (size_t i = 0; i < record.at("axes").size(); ++i) {
      parts.push_back(fmt::format("{}={}", record["axes"][i].at("key").get<std::string>(),
                                  cell.at("values")[i].get<std::string>()));
    }
    const std::string name = fmt::format("{} ({})", fmt::join(parts, ", "), hash);
    if (cell.at("status") == "failed") {
      failed += fmt::format("- {}: {}\n", name, cell.value("error", ""));
    }
    if (cell.at("status") != "done") continue;
    ++done;
    const fs::path folder = sweep / "cells" / hash;
    const ordered_json state = read_json(folder / "cell.json");
    if (state.contains("drift") && state["drift"].get<double>() > kMostDrift) {
      moved += fmt::format("- {}: by {}\n", name, percent_text(figure(state["drift"])));
    }
    const ordered_json summary = read_json(folder / "summary.json");
    models.insert(summary.at("model").at("file").get<std::string>());
    machines.insert(fmt::format("{}, {}", summary.at("machine").at("cpu").get<std::string>(),
                                summary.at("backend").get<std::string>()));
  }
  std::string out = fmt::format(
      "# {}\n\n{} of {} cells, {} by {}. ", record.at("name").get<std::string>(), done,
      record.at("cells").size(), record.at("combine") == "zip" ? "zipped" : "crossed", [&] {
        std::vector<std::string> keys;
        for (const auto& axis : record["axes"]) {
          keys.push_back(axis.at("key").get<std::string>());
        }
        return fmt::format("{}", fmt::join(keys, ", "));
      }());
  out += fmt::format("Model: {}. Machine: {}.\n\n{}\n", fmt::join(models, ", "),
                     fmt::join(machines, "; "), sweep_table(sweep).markdown());
  if (!moved.empty()) {
    out += fmt::format(
        "**The machine's own speed changed** while these cells were measured: their baseline moved "
        "by more than {:.0f} %. Measure them again on a quiet machine.\n\n{}\n",
        100.0 * kMostDrift, moved);
  }
  if (!failed.empty()) out += fmt::format("## Failed\n\n{}\n", failed);
  return out +
         "A line is a method of a cell. Speedup, tokens per step and identical are defined in the "
         "report of each cell, cells/HASH/report.md; \"baseline's\" are the tokens per second of "
         "the baseline that was measured beside it.\n";
}

}  // namespace coppice
