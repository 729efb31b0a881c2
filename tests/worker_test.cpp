// The worker of experiments/peers on a tiny model: what it decodes is what the engine decodes, with
// and without drafts, alone and among others; what it cannot serve is an answer, not an end.
#include "experiments/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/tiny_model_file.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() : path_(fs::temp_directory_path() / fmt::format("worker-{}.gguf", ::getpid())) {
    test::write_tiny_model(path_);
    worker_ = std::make_unique<Worker>(path_, BackendOptions{.threads = 2});
  }
  ~WorkerTest() override { fs::remove(path_); }

  json ask(const json& request) { return json::parse(worker_->answer(request).dump()); }
  json decode(const std::vector<json>& prompts, int draft_length) {
    return ask({{"measure", "decode"},
                {"prompts", prompts},
                {"new_tokens", 20},
                {"draft_length", draft_length}});
  }

  fs::path path_;
  std::unique_ptr<Worker> worker_;
};

const json kFirst = {72, 105, 72, 105, 72}, kSecond = {65, 66, 67};

TEST_F(WorkerTest, DecodesTheSameWithDraftsAndInABatch) {
  const json alone = decode({kFirst}, 0);
  EXPECT_EQ(alone.at("ids").at(0).size(), 20u);
  EXPECT_EQ(alone.at("steps"), 19);
  EXPECT_GT(alone.at("prefill_s"), 0.0);
  EXPECT_GT(alone.at("decode_s"), 0.0);

  const json drafted = decode({kFirst}, 3);
  EXPECT_EQ(drafted.at("ids"), alone.at("ids"));
  EXPECT_LE(drafted.at("steps"), 19);

  const json together = decode({kSecond, kFirst}, 0);
  EXPECT_EQ(together.at("ids").at(1), alone.at("ids").at(0));
  EXPECT_EQ(together.at("steps"), 19);
}

TEST_F(WorkerTest, TimesPrefillAndRows) {
  EXPECT_GT(ask({{"measure", "prefill"}, {"ids", kFirst}}).at("seconds"), 0.0);
  const json rows =
      ask({{"measure", "rows"}, {"context", kFirst}, {"rows", {1, 4}}, {"repeats", 2}});
  EXPECT_EQ(rows.at("seconds").size(), 2u);
  EXPECT_GT(rows.at("seconds").at("1"), 0.0);
  EXPECT_GT(rows.at("seconds").at("4"), 0.0);
}

TEST_F(WorkerTest, DescribesItself) {
  const json about = ask({{"measure", "describe"}});
  EXPECT_EQ(about.at("engine"), "coppice");
  EXPECT_EQ(about.at("model").at("name"), "Tiny llama");
  EXPECT_TRUE(about.at("machine").contains("cpu"));
}

TEST_F(WorkerTest, AnswersWhatItCannotServeAndGoesOn) {
  EXPECT_THAT(ask({{"measure", "speed"}}).at("error"), HasSubstr("unknown measure 'speed'"));
  EXPECT_TRUE(ask({{"measure", "decode"}}).contains("error"));
  EXPECT_TRUE(ask(json::array()).contains("error"));
  EXPECT_TRUE(decode({}, 0).contains("error"));
  EXPECT_TRUE(decode({json::array()}, 0).contains("error"));  // an empty prompt
  EXPECT_TRUE(ask({{"measure", "encode"}, {"texts", {"hi"}}}).contains("error"));  // no template
  EXPECT_EQ(decode({kFirst}, 0).at("steps"), 19);
}

}  // namespace
}  // namespace coppice
