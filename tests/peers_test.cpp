// The tables of experiments/peers: figures from samples with known ratios, and README's table is
// what the committed samples give.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const fs::path kSource = COPPICE_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Exit status of report.py with these arguments.
int report(const std::string& arguments) {
  const std::string script = (kSource / "experiments/peers/report.py").string();
  return std::system(fmt::format("python3 '{}' {} 2> /dev/null", script, arguments).c_str());
}

json sample(int round, const std::string& engine, const std::string& item, const json& figures) {
  json out = {{"round", round},      {"engine", engine},     {"item", item},
              {"others_cpu_s", 0.0}, {"foreign_cpu_s", 0.1}, {"elapsed_s", 1.0}};
  out.update(figures);
  return out;
}

/// Two engines, two rounds: the peer takes twice and four times our time to decode.
class PeersReport : public testing::Test {
 protected:
  PeersReport() : folder_(fs::temp_directory_path() / fmt::format("peers-{}", ::getpid())) {
    fs::create_directories(folder_ / "tiny");
    const json about = {{"version", "1"}, {"settings", "s"}};
    const json manifest = {
        {"title", "Tiny"},
        {"model", {{"file", "tiny.gguf"}}},
        {"machine", {{"cpu", "a cpu"}}},
        {"threads", 2},
        {"engines", {{"coppice", about}, {"peer", about}}},
        {"left_out", {{"third", "could not be installed"}}},
        {"unanswered", {{{"engine", "peer"}, {"item", "rows"}, {"why", "no interface"}}}},
        {"settings",
         {{"rounds", 2},
          {"new_tokens", 11},
          {"batch", 8},
          {"batch_new_tokens", 11},
          {"prefill_tokens", 100}}},
        {"prompts", {"a", "b"}}};
    std::ofstream(folder_ / "tiny/manifest.json") << manifest;
    std::ofstream samples(folder_ / "tiny/samples.jsonl");
    const auto decode = [](double seconds, int id) {
      return json{{"decode_s", seconds}, {"first_ids", {id}}};
    };
    samples << sample(0, "coppice", "decode", decode(0.1, 7)) << "\n"
            << sample(1, "coppice", "decode", decode(0.1, 8)) << "\n"
            << sample(0, "peer", "decode", decode(0.2, 7)) << "\n"
            << sample(1, "peer", "decode", decode(0.4, 9)) << "\n"
            << sample(0, "coppice", "prompt lookup", decode(0.05, 7)) << "\n"
            << sample(0, "coppice", "prefill", {{"seconds", 0.1}}) << "\n"
            << sample(0, "peer", "prefill", {{"seconds", 0.5}}) << "\n"
            << sample(0, "coppice", "batch", decode(0.4, 7)) << "\n"
            << sample(0, "coppice", "rows", {{"seconds", {{"1", 0.01}, {"2", 0.011}, {"8", 0.02}}}})
            << "\n";
    std::ofstream(folder_ / "README.md")
        << "before\n<!-- table:peers -->\nold\n<!-- /table -->\nafter\n";
  }
  ~PeersReport() override { fs::remove_all(folder_); }
  std::string arguments() const {
    return fmt::format("'{}' --readme '{}'", folder_.string(), (folder_ / "README.md").string());
  }

  fs::path folder_;
};

TEST_F(PeersReport, FiguresAreThoseOfTheSamples) {
  EXPECT_NE(report(arguments() + " --check"), 0);
  ASSERT_EQ(report(arguments()), 0);
  EXPECT_EQ(report(arguments() + " --check"), 0);
  const std::string readme = text_of(folder_ / "README.md");
  EXPECT_THAT(readme, HasSubstr("before\n<!-- table:peers -->\n| model |"));
  EXPECT_THAT(readme, Not(HasSubstr("old")));
  EXPECT_THAT(readme, HasSubstr("<!-- /table -->\nafter\n"));
  // 2 x 10 tokens in 0.2 s; 100 tokens in 0.1 s; 10 tokens in 0.05 s; 80 tokens in 0.4 s.
  EXPECT_THAT(readme,
              HasSubstr("| Tiny | coppice | **100** | **1000** | **200** | 2.00 | **200** | "
                        "1.10, 2.00 |"));
  // 2 x 10 tokens in 0.6 s: ours is 0.6 / 0.2 times as fast, between the two rounds' 2 and 4.
  EXPECT_THAT(readme,
              HasSubstr("| Tiny | peer | 33.3 (3.00 [2.00, 4.00]) | 200 (5.00) | - | - | - | - |"));
  const std::string text = text_of(folder_ / "report.md");
  EXPECT_THAT(text, HasSubstr("the same 11 ids as ours in 1 of 2"));
  EXPECT_THAT(text,
              HasSubstr("other programs used 10.0 % of a processor in the median, at most 10.0 %"));
  EXPECT_THAT(text, HasSubstr("third: left out: could not be installed"));
  EXPECT_THAT(text, HasSubstr("peer, rows: not measured: no interface"));
}

TEST(PeersResults, ReadmeHoldsWhatTheSamplesGiveAndNoPaths) {
  EXPECT_EQ(
      report(fmt::format("'{0}/results/peers' --readme '{0}/README.md' --check", kSource.string())),
      0);
  int manifests = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "results/peers")) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(text_of(entry.path()), Not(HasSubstr("\"/"))) << entry.path();
    manifests += entry.path().filename() == "manifest.json";
  }
  EXPECT_GT(manifests, 0);
}

}  // namespace
}  // namespace coppice
