// Pages that hold all they need: templates that stand beside this file (.html, .css, .js), built
// into the program, with places `{{name}}` that are filled in.
//
//   std::string page = fill_page(page_part("explain.html"),
//                                {{"data", json_for_page(run)}, {"title", escape_html(title)}});
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace coppice {

/// The text of a file in experiments/ that was built in; one that was not aborts.
std::string_view page_part(std::string_view file);
/// Every `{{name}}` becomes its value, or the part of that name. Values are taken as they are.
std::string fill_page(std::string_view page, const std::map<std::string, std::string>& values);

std::string escape_html(std::string_view text);
/// JSON that may stand in a <script>: `<` is escaped, ill-formed UTF-8 becomes U+FFFD.
std::string json_for_page(const nlohmann::ordered_json& json);

}  // namespace coppice
