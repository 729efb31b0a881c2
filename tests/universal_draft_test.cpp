// A draft model with a vocabulary of its own: the same text in other ids, kept up as it grows; what
// it writes, in the target's ids again; and the target's text whatever comes of it.
#include "drafters/universal_draft.h"

#include <gtest/gtest.h>

#include <random>

#include "experiments/decoder.h"
#include "tests/tiny_model.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

using test::byte_vocabulary;
using test::score_vocabulary;
using test::TinyModel;

std::string joined(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.token_text(id);
  return text;
}

const std::vector<std::string> kMerges = {"h e", "l l", "he ll", "hell o", "Ġ w", "o r"};

TEST(Retokenised, FollowsTheTextAsItGrows) {
  const Tokenizer own(byte_vocabulary("qwen2", kMerges));
  for (const bool byte_bpe : {true, false}) {
    const Tokenizer other(byte_bpe ? byte_vocabulary("gpt-2", {"e l", "l o", "Ġ h"})
                                   : score_vocabulary({{"hell", -1}, {"o w", -2}, {" h", -3}}));
    Retokenised text(other);
    std::mt19937 random(5);
    std::vector<int32_t> tokens;
    const std::string words = "hello world, <|im_end|>held low\n\xC3\xA9h ";
    const std::vector<int32_t> pool = own.encode(words, SpecialText::parsed);
    for (int step = 0; step < 60; ++step) {
      for (size_t grow = 1 + random() % 5; grow > 0; --grow) {
        tokens.push_back(pool[random() % pool.size()]);
      }
      text.follow(tokens, own);
      if (byte_bpe) {
        EXPECT_EQ(joined(text.ids(), other), joined(tokens, own));
      } else {
        EXPECT_EQ(text.ids().front(), other.vocabulary().bos);
      }
      // Where it was encoded piece by piece it may differ from one piece; it is rarely longer.
      const auto whole = other.encode(joined(tokens, own), SpecialText::parsed);
      EXPECT_LE(text.ids().size(), whole.size() + 1 + tokens.size() / 8);
    }
    const std::vector<int32_t> fresh = own.encode("hello", SpecialText::parsed);
    text.follow(fresh, own);  // a shorter text begins anew
    const auto expected = other.encode("hello", SpecialText::parsed);
    EXPECT_TRUE(std::equal(expected.rbegin(), expected.rend(), text.ids().rbegin()));
  }
}

TEST(EncodeBehind, CutsAtTheSeam) {
  const Tokenizer own(byte_vocabulary("gpt-2", kMerges));
  const auto ids = [&](std::string_view text) { return own.encode(text, SpecialText::parsed); };
  // Between words the seam is where a token ends.
  EXPECT_EQ(encode_behind(ids("hello"), " world", own), ids(" world"));
  // "hell" + "o" would be one token: the text is encoded alone.
  EXPECT_EQ(ids("hello").size(), 1u);
  EXPECT_EQ(encode_behind(ids("hell"), "or", own), ids("or"));
  EXPECT_EQ(encode_behind(ids("hell"), "o", own), ids("o"));
  EXPECT_EQ(encode_behind(ids("hello"), "<|im_end|>", own), ids("<|im_end|>"));
  EXPECT_EQ(encode_behind({}, "hello", own), ids("hello"));
}

class UniversalDraftTest : public testing::Test {
 protected:
  LoadedModel load(Vocabulary vocabulary, uint32_t seed) {
    LoadedModel loaded;
    loaded.tokenizer = std::make_unique<Tokenizer>(std::move(vocabulary));
    tiny_.push_back(std::make_unique<TinyModel>(TinyShape{
        .vocabulary = loaded.tokenizer->size(), .layers = 2, .type = DType::q8_0, .seed = seed}));
    loaded.model = std::make_unique<Model>(tiny_.back()->source(), *backend_);
    return loaded;
  }
  using TinyShape = test::TinyShape;
  std::unique_ptr<Backend> backend_ = make_backend({.name = "cpu", .threads = 1});
  std::vector<std::unique_ptr<TinyModel>> tiny_;
};

TEST_F(UniversalDraftTest, TheTextIsTheTargetsUnderEveryRule) {
  const LoadedModel target = load(byte_vocabulary("qwen2", kMerges), 1);
  const LoadedModel drafts[] = {load(byte_vocabulary("gpt-2", {"e l", "l o"}), 2),
                                load(score_vocabulary({{"hello", -1}, {" w", -2}}), 3)};
  const auto decode = [&](const MethodSpec& spec, const LoadedModel* draft, float temperature,
                          int batch, int64_t* drafted) {
    Decoder decoder(spec, target, draft, *backend_, {.sequences = batch, .context = 64},
                    temperature);
    decoder.engine().on_step = [&](const StepRecord& record) { *drafted += record.drafted; };
    std::vector<RequestId> ids;
    for (int i = 0; i < 3; ++i) {
      Request request;
      request.prompt = target.tokenizer->encode("hello world, hell", SpecialText::literal);
      request.prompt.resize(request.prompt.size() - static_cast<size_t>(i));
      request.stop.max_new_tokens = 24;
      request.sampling.temperature = temperature;
      request.sampling.request = static_cast<uint32_t>(i);
      ids.push_back(decoder.engine().submit(std::move(request)));
    }
    while (decoder.engine().step()) decoder.engine().cache().poison_uncommitted();
    std::vector<std::vector<int32_t>> texts;
    for (RequestId id : ids) texts.push_back(decoder.engine().answer(id).ids);
    return texts;
  };
  for (const float temperature : {0.0f, 1.0f}) {
    int64_t none = 0, drafted = 0;
    const auto expected = decode({}, nullptr, temperature, 1, &none);
    for (const LoadedModel& draft : drafts) {
      const MethodSpec spec{.method = "universal_draft", .budget = kBudgetAll};
      EXPECT_EQ(decode(spec, &draft, temperature, 1, &drafted), expected);
      EXPECT_EQ(decode(spec, &draft, temperature, 3, &drafted), expected);
      const MethodSpec rejecting{
          .method = "universal_draft", .rule = "rejection", .budget = kBudgetAll};
      EXPECT_EQ(decode(rejecting, &draft, temperature, 1, &drafted),
                decode(rejecting, &draft, temperature, 3, &drafted));
    }
    EXPECT_GT(drafted, 0);
  }
}

}  // namespace
}  // namespace coppice
