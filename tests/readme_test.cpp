// README's example method, compiled from README itself, decodes losslessly; its tables of methods
// and rules are those of the lists.
#include <gtest/gtest.h>

#include <filesystem>

#include "decoding/engine.h"
#include "experiments/methods_markdown.h"
#include "experiments/report.h"
#include "experiments/run_folder.h"
#include "readme_example.h"  // written by tests/CMakeLists.txt
#include "tests/tiny_model.h"

namespace coppice {
namespace {

TEST(Readme, TheExampleMethodIsLossless) {
  const test::TinyModel tiny({.sharpness = 3.0f});
  const auto backend = make_backend({.name = "cpu", .threads = 1});
  const Model model(tiny.source(), *backend);
  const auto rule = make_rule("greedy");
  const auto options = read_options<RepeatOptions>({{"period", int64_t{2}, "test"}}, "test");
  Repeat drafter(options);
  const auto decode = [&](Drafter* with, int64_t* drafted) {
    Engine engine({&model, backend.get(), nullptr, rule.get(), with},
                  {.context = 128, .budget = 64});
    engine.on_step = [&](const StepRecord& record) { *drafted += record.drafted; };
    Request request;
    request.prompt = {3, 4, 3, 4};
    request.stop.max_new_tokens = 60;
    const RequestId id = engine.submit(std::move(request));
    while (engine.step()) {
    }
    return engine.take(id).ids;
  };
  int64_t none = 0, drafted = 0;
  EXPECT_EQ(decode(&drafter, &drafted), decode(nullptr, &none));
  EXPECT_EQ(none, 0);
  EXPECT_GT(drafted, 0);
}

TEST(Readme, TheTablesOfMethodsAndRulesAreCurrent) {
  const std::string readme =
      read_whole_file(std::filesystem::path(COPPICE_SOURCE_DIR) / "README.md");
  EXPECT_TRUE(replace_table(readme, "method-list", methods_markdown()) == readme)
      << "run: coppice methods --readme README.md";
}

}  // namespace
}  // namespace coppice
