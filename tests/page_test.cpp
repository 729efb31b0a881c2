// Pages and tables: what is put into a template arrives as it is meant, whatever it holds.
#include "experiments/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/explain_page.h"
#include "experiments/table.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

TEST(Page, PlacesAreFilledAndTheirValuesTakenAsTheyAre) {
  EXPECT_EQ(fill_page("a {{x}} b {{y}}{{x}}", {{"x", "{{y}}"}, {"y", "2"}}), "a {{y}} b 2{{y}}");
  EXPECT_EQ(fill_page("{{page.css}}", {}), page_part("page.css"));
}

TEST(Page, TextCannotEndTheScriptThatHoldsIt) {
  const std::string json = json_for_page({{"text", "</script><b>\xff"}});
  EXPECT_THAT(json, Not(HasSubstr("<")));
  EXPECT_EQ(ordered_json::parse(json)["text"], "</script><b>\xef\xbf\xbd");
  EXPECT_EQ(escape_html("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
}

/// What stands between the tags of the page's data.
ordered_json data_of(const std::string& page) {
  const std::string open = "<script id=\"run\" type=\"application/json\">";
  const size_t begin = page.find(open) + open.size();
  return ordered_json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(ExplainPage, HoldsEveryStepAndLoadsNothing) {
  ExplainedRun run;
  run.method = "suffix </title>";
  run.prompt = "</script>";
  run.baseline_ms = {2.5};
  ToldStep told;
  told.step.nodes.resize(2);
  told.step.nodes[1] = {.token = 7, .text = "x", .parent = 0, .row = 1, .q = 0.5, .p = 0.25};
  told.step.path = {1};
  told.record.rows = 2;
  told.record.target_ms = 3.5;
  told.pieces = {"x", " y"};
  run.steps = {told};
  const std::string page = explain_page(run);
  EXPECT_THAT(page, HasSubstr("<title>suffix &lt;/title&gt;, step by step</title>"));
  for (const char* loads : {"http:", "https:", "src=", "@import", "url("}) {
    std::string without = page;  // the name of SVG's namespace is no address
    const std::string name = "http://www.w3.org/2000/svg";
    without.erase(without.find(name), name.size());
    EXPECT_THAT(without, Not(HasSubstr(loads)));
  }
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  const ordered_json data = data_of(page);
  EXPECT_EQ(data["prompt"], "</script>");
  const ordered_json& step = data["steps"][0];
  EXPECT_EQ(step["nodes"][1]["q"], 0.5);
  EXPECT_EQ(step["nodes"][1]["row"], 1);
  EXPECT_EQ(step["ms"]["target"], 3.5);
  EXPECT_EQ(step["pieces"], ordered_json({"x", " y"}));
}

TEST(Table, IsWrittenForEachReader) {
  Table table({"method", "share"});
  table.add({"a_b", "50 %"});
  Table all = table.under("run", "1");
  all.append(table.under("run", "<2>"));
  EXPECT_EQ(all.markdown(),
            "| run | method | share |\n|---|---|---:|\n| 1 | a_b | 50 % |\n| <2> | a_b | 50 % |\n");
  EXPECT_THAT(all.latex(),
              HasSubstr("\\begin{tabular}{llr}\n\\toprule\nrun & method & share \\\\"));
  EXPECT_THAT(all.latex(), HasSubstr("1 & a\\_b & 50 \\% \\\\"));
  EXPECT_THAT(all.html(), HasSubstr("<td class=\"text\">&lt;2&gt;</td>"));
  EXPECT_THAT(all.html(), HasSubstr("<td>50 %</td>"));
  EXPECT_EQ(escape_latex("~^\\{}"), "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\{\\}");
}

}  // namespace
}  // namespace coppice
