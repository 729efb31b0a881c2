// See methods_markdown.h.
#include "experiments/methods_markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "drafters/methods.h"

namespace coppice {
namespace {

/// "Leviathan 2023, Chen 2023" as authors and years.
struct Papers {
  std::string authors, years;
};
Papers papers_of(std::string_view list) {
  std::vector<std::string_view> authors, years;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(", ", begin), list.size());
    const std::string_view paper = list.substr(begin, end - begin);
    const size_t space = paper.rfind(' ');
    authors.push_back(paper.substr(0, space));
    years.push_back(space == std::string_view::npos ? "-" : paper.substr(space + 1));
    begin = end + 2;
  }
  return {fmt::format("{}", fmt::join(authors, ", ")), fmt::format("{}", fmt::join(years, ", "))};
}

std::string options_text(const std::vector<OptionDoc>& options) {
  std::vector<std::string> texts;
  for (const OptionDoc& option : options) {
    texts.push_back(fmt::format("`{} = {}`", option.key, option.default_value));
  }
  return texts.empty() ? "-" : fmt::format("{}", fmt::join(texts, ", "));
}

/// A method with an option `head` reads a file that was trained for the target.
std::string_view training_of(const MethodEntry& method, const std::vector<OptionDoc>& options) {
  if (method.needs_draft_model) return "a draft model";
  const bool reads_head = std::any_of(options.begin(), options.end(),
                                      [](const OptionDoc& option) { return option.key == "head"; });
  return reads_head ? "a head" : "none";
}

}  // namespace

std::string methods_markdown() {
  std::string out =
      "| method | paper | year | training | lossless | options |\n|---|---|---|---|---|---|\n";
  for (const MethodEntry& method : methods()) {
    const Papers papers = papers_of(method.paper);
    const bool lossless = method.rule.empty() || make_rule(method.rule)->lossless();
    out += fmt::format("| `{}`: {} | {} | {} | {} | {} | {} |\n", method.name, method.summary,
                       papers.authors, papers.years, training_of(method, method.describe()),
                       lossless ? "yes" : fmt::format("no, rule `{}`", method.rule),
                       options_text(method.describe()));
  }
  out += "\n| rule | paper | year | lossless | options |\n|---|---|---|---|---|\n";
  for (const RuleEntry& entry : rules()) {
    const Papers papers = papers_of(entry.paper);
    const std::string_view mark = mark_of(*make_rule(entry.name));
    out +=
        fmt::format("| `{}`: {} | {} | {} | {} | {} |\n", entry.name, entry.summary, papers.authors,
                    papers.years, mark.empty() ? "yes" : fmt::format("no: {}", mark),
                    options_text(docs_in_table(entry.describe(), entry.name)));
  }
  return out;
}

}  // namespace coppice
