// The table that `coppice roofline` prints, made from its record alone. See roofline.h.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "experiments/roofline.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

/// "3.21 [3.10, 3.35]"
std::string middle_text(const ordered_json& middle, int digits) {
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", middle.at("median").get<double>(), digits,
                     middle.at("low").get<double>(), digits, middle.at("high").get<double>(),
                     digits);
}
/// "82 % [80, 84]"
std::string share_text(const ordered_json& middle) {
  return fmt::format("{:.0f} % [{:.0f}, {:.0f}]", 100 * middle.at("median").get<double>(),
                     100 * middle.at("low").get<double>(), 100 * middle.at("high").get<double>());
}

std::string read_line(const ordered_json& read, std::string_view note) {
  return fmt::format(
      "  {:>7.1f} MiB  {:>7.1f} GB/s   best {:.1f}   {} stream{}, {} bytes ahead{}\n",
      read.at("bytes").get<double>() / (1 << 20), read.at("median_gb_per_s").get<double>(),
      read.at("best_gb_per_s").get<double>(), read.at("streams").get<int>(),
      read.at("streams").get<int>() == 1 ? "" : "s", read.at("ahead").get<int>(), note);
}

std::string machine_text(const ordered_json& record) {
  std::string out =
      fmt::format("{}, {}\n\nread bandwidth\n", record.at("machine").at("cpu").get<std::string>(),
                  record.at("backend").get<std::string>());
  for (const ordered_json& read : record.at("reads")) out += read_line(read, "");
  if (record.contains("read")) out += read_line(record.at("read"), " (the model's size)");
  out += fmt::format("fp32 multiply-add    {:>8.1f} Gop/s\n4-bit x 8-bit dot    {:>8.1f} Gop/s\n",
                     record.at("fp32_gflop_per_s").get<double>(),
                     record.at("int8_gop_per_s").get<double>());
  return out;
}

std::string step_line(const ordered_json& step) {
  const double ms = step.at("ms").at("median").get<double>();
  return fmt::format(
      "{:>5}  {:>26}  {:>20}  {:>8.1f}  {:>8.2f}  {:>8.2f}  {:>6.1f}  {:>8.3f} {:>5.0f} %  {}\n",
      step.at("rows").get<int>(), middle_text(step.at("ms"), 3), middle_text(step.at("cost"), 2),
      step.at("rows").get<int>() / ms * 1e3, step.at("bytes").get<double>() / 1e6,
      step.at("operations").get<double>() / 1e9, step.at("bytes").get<double>() / ms / 1e6,
      step.at("limit_ms").get<double>(), 100 * step.at("share_of_limit").get<double>(),
      step.at("limited_by").get<std::string>());
}

std::string parts_lines(const ordered_json& step) {
  const ordered_json& parts = step.at("parts");
  return fmt::format(
      "  {} row{} at {}: products {} ms ({} rows/s), norms {} ms, attention {} ms, outside "
      "products "
      "and attention {}\n",
      step.at("rows").get<int>(), step.at("rows").get<int>() == 1 ? "" : "s",
      step.at("context").get<int>(), middle_text(parts.at("products_ms"), 3),
      middle_text(parts.at("products_rows_per_s"), 0), middle_text(parts.at("norms_ms"), 3),
      middle_text(parts.at("attention_ms"), 3),
      share_text(parts.at("share_outside_products_and_attention")));
}

std::string model_text(const ordered_json& record) {
  const ordered_json& model = record.at("model");
  std::string out =
      fmt::format("\n{} ({}), {:.1f} MB packed; medians of {} rounds [95 %]\n",
                  model.at("name").get<std::string>(), model.at("file").get<std::string>(),
                  model.at("weight_bytes").get<double>() / 1e6, record.at("rounds").get<int>());
  int context = -1;
  for (const ordered_json& step : record.at("steps")) {
    if (step.at("context").get<int>() != context) {
      context = step.at("context").get<int>();
      out += fmt::format(
          "\ncontext {}\n{:>5}  {:>26}  {:>20}  {:>8}  {:>8}  {:>8}  {:>6}  {:>8} {:>7}\n", context,
          "rows", "ms a step", "c(n)", "rows/s", "MB", "Gop", "GB/s", "limit ms", "reached");
    }
    out += step_line(step);
  }
  out += "\nread bandwidth that a step of 1 row reaches\n";
  for (const ordered_json& step : record.at("steps")) {
    if (step.contains("share_of_read_bandwidth")) {
      out += fmt::format("  at {}: {}\n", step.at("context").get<int>(),
                         share_text(step.at("share_of_read_bandwidth")));
    }
  }
  out += "\nparts of a step, each kind of operation timed alone\n";
  for (const ordered_json& step : record.at("steps")) {
    if (step.contains("parts")) out += parts_lines(step);
  }
  if (!record.at("contexts_left_out").empty()) {
    out += fmt::format("\nleft out, the model being too short: context {}\n",
                       fmt::join(record.at("contexts_left_out").get<std::vector<int>>(), ", "));
  }
  return out;
}

}  // namespace

std::string roofline_text(const ordered_json& record) {
  return machine_text(record) + (record.contains("model") ? model_text(record) : "");
}

}  // namespace coppice
