// See explain_page.h.
#include "experiments/explain_page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "experiments/page.h"

namespace coppice {

using nlohmann::ordered_json;

std::string explain_page(const ExplainedRun& run) {
  ordered_json steps = ordered_json::array();
  for (const ToldStep& told : run.steps) {
    ordered_json step = explained_json(told.step, told.record);
    step["pieces"] = told.pieces;
    steps.push_back(std::move(step));
  }
  const ordered_json data = {
      {"method", run.method},          {"rule", run.rule},     {"about", run.about},
      {"setting", run.setting},        {"prompt", run.prompt}, {"steps", std::move(steps)},
      {"baseline_ms", run.baseline_ms}};
  return fill_page(page_part("explain.html"),
                   {{"data", json_for_page(data)},
                    {"title", escape_html(fmt::format("{}, step by step", run.method))}});
}

}  // namespace coppice
