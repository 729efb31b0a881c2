// Vocabularies from tokenizer.json: the ids of the same vocabulary built by hand, on text of many
// scripts and on special tokens; the settings of the files beside it; and one clear refusal for
// each step that would give other ids.
#include "core/folder_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/chat_template.h"
#include "core/model_folder.h"
#include "kernels/base/error.h"
#include "tests/scratch.h"
#include "tests/tiny_folder.h"

namespace coppice {
namespace {

using nlohmann::json;
using test::byte_vocabulary;
using test::error_of;
using test::score_vocabulary;
using test::Scratch;
using test::tokenizer_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

const json kConfig = {{"vocab_size", 400}, {"bos_token_id", 1}, {"eos_token_id", {2, 3}}};

/// The files of a tokenizer; null: there is none.
struct Files {
  json tokenizer, settings, generation;
  json config = kConfig;
  std::string chat = {};

  Vocabulary read() const {
    const Scratch scratch;
    std::ofstream(scratch / "tokenizer.json") << tokenizer;
    if (!settings.is_null()) std::ofstream(scratch / "tokenizer_config.json") << settings;
    if (!generation.is_null()) std::ofstream(scratch / "generation_config.json") << generation;
    if (!chat.empty()) std::ofstream(scratch / "chat_template.jinja") << chat;
    return read_folder_vocabulary(scratch.path(), JsonObject::parse("config.json", config.dump()));
  }
  std::string refusal() const {
    const std::string message = error_of([&] { Tokenizer{read()}; });
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
};

Vocabulary merged_bytes(const std::string& pre) {
  return byte_vocabulary(pre, {"h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "\u0120w or",
                               "1 2", "12 3", "\u00c3 \u00a9", "\u0120 \u0120"});
}

Vocabulary scored() {
  return score_vocabulary({{"h", -9},
                           {"e", -9},
                           {"l", -9},
                           {"o", -9},
                           {" ", -9},
                           {"w", -9},
                           {"\u00e9", -9},
                           {"he", -1},
                           {"ll", -2},
                           {"hell", -3},
                           {"hello", -4},
                           {" w", -5},
                           {"  ", -6},
                           {"ow", -7},
                           {"a", -9},
                           {"aa", -2.5}});
}

const std::vector<std::string> kTexts = {"",
                                         "hello world",
                                         "hello  world\n\n\nhe 1234 12 3",
                                         "h\u00e9llo \u0126\u4e16\u754c \U0001F600",
                                         "<|im_start|>user\nhello<|im_end|>",
                                         "<tool>he</tool><s>",
                                         "he'll I'LL\r\n\t x\u0085y\u180e",
                                         "   hello   \n\n w",
                                         "<bos><start_of_turn>hello<end_of_turn>",
                                         "aaaaa aaaa <0x41>"};

void expect_equal(const Tokenizer& got, const Tokenizer& expected, const std::string& text) {
  for (const SpecialText special : {SpecialText::literal, SpecialText::parsed}) {
    const Ids ids = got.encode(text, special);
    EXPECT_EQ(ids, expected.encode(text, special)) << text;
    EXPECT_EQ(got.decode(ids), expected.decode(ids)) << text;
  }
  EXPECT_EQ(got.encode_prompt(text), expected.encode_prompt(text)) << text;
}

class EachVocabulary : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(FolderVocabulary, EachVocabulary,
                         testing::Values("gpt2", "smollm", "llamabpe", "qwen2", "scores"),
                         [](const auto& test_info) { return std::string(test_info.param); });

Vocabulary vocabulary_named(const std::string& name) {
  if (name == "scores") return scored();
  return merged_bytes(name == "gpt2" ? "gpt-2" : name == "llamabpe" ? "llama-bpe" : name);
}

TEST_P(EachVocabulary, GivesTheIdsOfTheVocabularyItHolds) {
  const Vocabulary vocabulary = vocabulary_named(GetParam());
  const Tokenizer expected(vocabulary);
  for (const bool as_pairs : {false, true}) {
    Files files{.tokenizer = tokenizer_json(vocabulary, as_pairs)};
    files.settings = {{"bos_token", expected.vocabulary().tokens[vocabulary.bos]},
                      {"eos_token", {{"content", vocabulary.tokens[vocabulary.eos]}}}};
    files.config.erase("eos_token_id");
    const Tokenizer tokenizer(files.read());
    EXPECT_EQ(tokenizer.vocabulary().tokens, vocabulary.tokens);
    EXPECT_EQ(tokenizer.vocabulary().types, vocabulary.types);
    EXPECT_EQ(tokenizer.vocabulary().bos, vocabulary.bos);
    EXPECT_EQ(tokenizer.vocabulary().eos, vocabulary.eos);
    EXPECT_EQ(tokenizer.vocabulary().add_bos, vocabulary.add_bos);
    EXPECT_THAT(tokenizer.stop_ids(), testing::ElementsAreArray(expected.stop_ids()));
    for (const std::string& text : kTexts) expect_equal(tokenizer, expected, text);
  }
}

RC_GTEST_PROP(FolderVocabulary, GivesThoseIdsOnAnyText, ()) {
  static const std::vector<std::pair<Tokenizer, Tokenizer>> pairs = [] {
    std::vector<std::pair<Tokenizer, Tokenizer>> made;
    for (const char* name : {"gpt2", "smollm", "llamabpe", "qwen2", "scores"}) {
      const Vocabulary vocabulary = vocabulary_named(name);
      made.emplace_back(Tokenizer(Files{.tokenizer = tokenizer_json(vocabulary)}.read()),
                        Tokenizer(vocabulary));
    }
    return made;
  }();
  std::string text;
  for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
    text += *rc::gen::elementOf(std::vector<std::string>{
        "he",     "l", "o",  " ",    "  ",     "w",    "or",     "1",   "23",  "\n", "\u00e9",
        "\u4e16", "a", "aa", "\xff", "<tool>", "\n\n", "\u2581", "<s>", "'ll", "."});
  }
  for (const auto& [got, expected] : pairs) {
    RC_ASSERT(got.encode(text, SpecialText::literal) ==
              expected.encode(text, SpecialText::literal));
  }
}

TEST(FolderVocabulary, SpecialIdsComeFromTheFilesInOrder) {
  const Vocabulary vocabulary = merged_bytes("qwen2");
  Files files{.tokenizer = tokenizer_json(vocabulary)};
  Vocabulary read = files.read();
  EXPECT_EQ(read.bos, 1);  // config.json alone
  EXPECT_EQ(read.eos, 2);
  EXPECT_THAT(read.more_stops, ElementsAre(2, 3));
  files.generation = {{"eos_token_id", 5}};
  EXPECT_THAT(files.read().more_stops, ElementsAre(5));
  EXPECT_EQ(files.read().eos, 5);
  files.settings = {{"eos_token", "<|im_end|>"}, {"bos_token", nullptr}};
  read = files.read();
  EXPECT_EQ(read.eos, vocabulary.eos);
  EXPECT_EQ(read.bos, 1);
  EXPECT_THAT(Tokenizer(read).stop_ids(), ElementsAre(5, vocabulary.eos));
  files.settings["eos_token"] = "<none>";
  EXPECT_THAT(files.refusal(),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("names the token '<none>'")));
  files.settings = nullptr;
  files.generation["eos_token_id"] = {5, 400};
  EXPECT_THAT(files.refusal(), AllOf(HasSubstr("generation_config.json"),
                                     HasSubstr("'eos_token_id' holds 400; expected ids up to")));
}

TEST(FolderVocabulary, ABosIsWantedWhereTheFilesSaySo) {
  Vocabulary vocabulary = merged_bytes("llama-bpe");
  Files files{.tokenizer = tokenizer_json(vocabulary)};
  EXPECT_FALSE(files.read().add_bos);
  files.settings = {{"add_bos_token", true}};
  EXPECT_TRUE(files.read().add_bos);
  vocabulary.add_bos = true;
  files = {.tokenizer = tokenizer_json(vocabulary)};
  EXPECT_TRUE(files.read().add_bos);
  EXPECT_EQ(files.read().bos, vocabulary.bos);
  files.tokenizer["post_processor"] = {
      {"type", "Sequence"},
      {"processors", {{{"type", "ByteLevel"}}, files.tokenizer["post_processor"]}}};
  EXPECT_TRUE(files.read().add_bos);
  files.settings = {{"add_bos_token", false}};
  EXPECT_FALSE(files.read().add_bos);
  json& processors = files.tokenizer["post_processor"]["processors"];
  processors[1]["single"].push_back({{"SpecialToken", {{"id", "<|im_end|>"}}}});
  EXPECT_THAT(files.refusal(), HasSubstr("adds '<|im_end|>' to each text"));
  processors[1] = {{"type", "BertProcessing"}};
  EXPECT_THAT(files.refusal(),
              HasSubstr("'post_processor.processors[1].type' is 'BertProcessing'"));
  files = {.tokenizer = tokenizer_json(merged_bytes("gpt-2")),
           .settings = {{"add_bos_token", true}}};
  files.config.erase("bos_token_id");
  EXPECT_THAT(files.refusal(), HasSubstr("false where no file names a bos_token"));
}

TEST(FolderVocabulary, TheChatTemplateIsFound) {
  const std::string chatml = "{{'<|im_start|>' + message['role']}}";
  Files files{.tokenizer = tokenizer_json(merged_bytes("qwen2"))};
  EXPECT_EQ(files.read().chat_template, "");
  files.settings = {{"chat_template", chatml}};
  const Tokenizer tokenizer(files.read());
  const ChatTemplate chat(tokenizer);
  EXPECT_EQ(chat.family(), ChatTemplate::Family::chatml);
  EXPECT_EQ(chat.encode({{Role::user, "hello"}}),
            tokenizer.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
                             SpecialText::parsed));
  files.settings = {
      {"chat_template",
       {{{"name", "tool_use"}, {"template", "no"}}, {{"name", "default"}, {"template", chatml}}}}};
  EXPECT_EQ(files.read().chat_template, chatml);
  files.settings["chat_template"].erase(1);
  EXPECT_THAT(files.refusal(), HasSubstr("a template named default"));
  files.chat = "of its own file";
  EXPECT_EQ(files.read().chat_template, "of its own file");
}

TEST(FolderVocabulary, AddedTokensAreSortedByWhatTheyAre) {
  Files files{.tokenizer = tokenizer_json(merged_bytes("qwen2"))};
  const auto add = [&](int id, const std::string& text, bool special) {
    files.tokenizer["added_tokens"].push_back(
        {{"id", id}, {"content", text}, {"special", special}});
  };
  add(300, "<|fim|>", false);  // a template's, whatever the file says
  add(302, "<think>", false);
  add(400, "<image>", true);  // beyond the model's rows
  const Vocabulary vocabulary = files.read();
  ASSERT_EQ(vocabulary.tokens.size(), 303u);
  EXPECT_EQ(vocabulary.types[300], TokenType::control);
  EXPECT_EQ(vocabulary.types[301], TokenType::unused);
  EXPECT_EQ(vocabulary.types[302], TokenType::user_defined);
  const Tokenizer tokenizer(vocabulary);
  EXPECT_EQ(tokenizer.encode("<think>", SpecialText::literal), Ids{302});
  EXPECT_GT(tokenizer.encode("<|fim|>", SpecialText::literal).size(), 1u);
  EXPECT_EQ(tokenizer.piece(301), "");
}

// A run of U+2581 among the added tokens of gemma stands for spaces, and merges lead to it.
TEST(FolderVocabulary, RunsOfSpacesAreMerged) {
  Files files{.tokenizer = tokenizer_json(scored())};
  const int id = files.tokenizer["model"]["vocab"]["\u2581\u2581"];
  files.tokenizer["added_tokens"].push_back(
      {{"id", id}, {"content", "\u2581\u2581"}, {"special", false}});
  const Tokenizer tokenizer(files.read()), expected(scored());
  for (const std::string& text : kTexts) expect_equal(tokenizer, expected, text);
}

TEST(FolderVocabulary, MergesNeverMakeASpecialToken) {
  Files files{.tokenizer = tokenizer_json(scored())};
  files.tokenizer["model"]["vocab"]["<bos"] = 390;
  files.tokenizer["model"]["vocab"][">"] = 391;
  files.tokenizer["model"]["merges"].insert(files.tokenizer["model"]["merges"].begin(), "<bos >");
  const Tokenizer tokenizer(files.read());
  const Ids ids = tokenizer.encode("<bos>", SpecialText::literal);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.vocabulary().bos), 0);
}

TEST(FolderVocabulary, OtherStepsAreRefused) {
  const auto bytes = [](const std::function<void(json&)>& change) {
    Files files{.tokenizer = tokenizer_json(merged_bytes("qwen2"))};
    change(files.tokenizer);
    return files.refusal();
  };
  const auto scores = [](const std::function<void(json&)>& change) {
    Files files{.tokenizer = tokenizer_json(scored())};
    change(files.tokenizer);
    return files.refusal();
  };
  EXPECT_EQ(bytes([](json&) {}), "no error");
  EXPECT_EQ(scores([](json&) {}), "no error");
  EXPECT_EQ(scores([](json& t) { t["pre_tokenizer"] = nullptr; }), "no error");
  EXPECT_THAT(bytes([](json& t) { t["model"]["type"] = "Unigram"; }),
              HasSubstr("key 'model.type' is 'Unigram'; expected 'BPE'"));
  EXPECT_THAT(bytes([](json& t) { t["model"]["dropout"] = 0.1; }), HasSubstr("'model.dropout'"));
  EXPECT_THAT(bytes([](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("'model.end_of_word_suffix' is '</w>'"));
  EXPECT_THAT(bytes([](json& t) {
                t["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("'normalizer.type' is 'Lowercase'"));
  EXPECT_THAT(
      bytes([](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a\n"; }),
      HasSubstr(R"(splits by the regular expression 'a\x0a', which is none of)"));
  EXPECT_THAT(
      bytes([](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }),
      HasSubstr("'pre_tokenizer.pretokenizers[0].behavior' is 'Removed'"));
  EXPECT_THAT(
      bytes([](json& t) { t["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }),
      HasSubstr("add_prefix_space' is true; expected false"));
  EXPECT_THAT(bytes([](json& t) {
                t["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("has the steps [Whitespace]"));
  EXPECT_THAT(bytes([](json& t) { t["pre_tokenizer"] = nullptr; }), HasSubstr("has the steps []"));
  EXPECT_THAT(scores([](json& t) {
                t["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
              }),
              HasSubstr("space in front of a text"));
  EXPECT_THAT(scores([](json& t) {
                t["pre_tokenizer"] = {{"type", "Metaspace"}};
              }),
              HasSubstr("'pre_tokenizer.type' is 'Metaspace'"));
  EXPECT_THAT(scores([](json& t) { t["model"]["ignore_merges"] = true; }),
              HasSubstr("'model.ignore_merges'"));
}

TEST(FolderVocabulary, DamageIsNamed) {
  const auto with = [](const std::function<void(json&)>& change) {
    Files files{.tokenizer = tokenizer_json(merged_bytes("gpt-2"))};
    change(files.tokenizer);
    return files.refusal();
  };
  EXPECT_THAT(with([](json& t) { t.erase("model"); }), HasSubstr("key 'model' is missing"));
  EXPECT_THAT(with([](json& t) { t["model"].erase("vocab"); }), HasSubstr("'model.vocab'"));
  EXPECT_THAT(with([](json& t) { t["model"]["vocab"] = json::object(); }),
              HasSubstr("'model.vocab' is an object; expected an object of tokens"));
  EXPECT_THAT(with([](json& t) { t["model"]["vocab"]["zz"] = 400; }),
              HasSubstr("'model.vocab.zz' is 400; expected an id below 400"));
  EXPECT_THAT(with([](json& t) { t["model"]["vocab"]["zz"] = -1; }), HasSubstr("is -1"));
  EXPECT_THAT(with([](json& t) { t["model"]["vocab"]["zz"] = "1"; }), HasSubstr("is '1'"));
  EXPECT_THAT(with([](json& t) { t["model"]["vocab"]["zz"] = 7; }), HasSubstr("both have id 7"));
  EXPECT_THAT(with([](json& t) { t["model"].erase("merges"); }), HasSubstr("'model.merges'"));
  for (const json& merge : {json("ab"), json("a b c"), json("h q q"), json("zz h")}) {
    EXPECT_THAT(with([&](json& t) { t["model"]["merges"][1] = merge; }),
                HasSubstr("tokenizer.json: model.merges[1] is '" + merge.get<std::string>() + "'"));
  }
  for (const json& merge : {json(1), json{"h"}, json{"h", "e", "l"}, json{"h", 1}}) {
    EXPECT_THAT(with([&](json& t) { t["model"]["merges"][1] = merge; }),
                HasSubstr("key 'model.merges[1]' is"));
  }
  EXPECT_THAT(with([](json& t) { t["added_tokens"][0]["lstrip"] = true; }),
              HasSubstr("'added_tokens[0].lstrip' is true"));
  EXPECT_THAT(with([](json& t) { t["added_tokens"][0] = "x"; }),
              HasSubstr("'added_tokens[0]' is no object"));
  EXPECT_THAT(with([](json& t) { t["added_tokens"][0].erase("id"); }),
              HasSubstr("'added_tokens[0].id' is missing"));
  EXPECT_THAT(with([](json& t) { t["added_tokens"][0]["content"] = ""; }),
              HasSubstr("'added_tokens[0].content'"));
  EXPECT_THAT(with([](json& t) { t["added_tokens"][0]["content"] = "<|im_end|>"; }),
              HasSubstr("are both '<|im_end|>'"));
  Files far{.tokenizer = tokenizer_json(merged_bytes("gpt-2"))};
  far.config["vocab_size"] = 16'000'000;
  far.tokenizer["model"]["vocab"]["zz"] = 15'000'000;
  EXPECT_THAT(far.refusal(), HasSubstr("has id 15000000, far beyond"));
}

}  // namespace
}  // namespace coppice
