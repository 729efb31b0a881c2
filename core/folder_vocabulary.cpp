// See folder_vocabulary.h.
#include "core/folder_vocabulary.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <unordered_map>

#include "core/architecture.h"
#include "core/quote.h"
#include "core/score_merges.h"
#include "core/tokenizer_steps.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMostHoles = 65536;  // ids between others that no token has

/// Tokens by id while they are gathered; check() and the merges look at the whole later.
class TokenTable {
 public:
  TokenTable(const JsonObject& tokenizer, Vocabulary& vocabulary)
      : tokenizer_(tokenizer), vocabulary_(vocabulary) {}

  void add(const std::string& text, int64_t id, TokenType type) {
    const auto size = static_cast<int64_t>(vocabulary_.tokens.size());
    if (id >= size) {
      holes_ += id - size;
      if (holes_ > kMostHoles) {
        throw Error("{}: token {} has id {}, far beyond the {} before it; the file is damaged",
                    tokenizer_.file(), quote(text), id, size);
      }
      vocabulary_.tokens.resize(static_cast<size_t>(id) + 1);
      vocabulary_.types.resize(static_cast<size_t>(id) + 1, TokenType::unused);
      known_.resize(static_cast<size_t>(id) + 1);
    }
    const auto at = static_cast<size_t>(id);
    if (known_[at] && vocabulary_.tokens[at] != text) {
      throw Error("{}: tokens {} and {} both have id {}; the file is damaged, fetch it again",
                  tokenizer_.file(), quote(vocabulary_.tokens[at]), quote(text), id);
    }
    known_[at] = true;
    vocabulary_.tokens[at] = text;
    vocabulary_.types[at] = type;
  }

  /// Ids that no token has get texts of their own.
  void fill_holes() {
    for (size_t id = 0; id < known_.size(); ++id) {
      if (!known_[id]) vocabulary_.tokens[id] = fmt::format("[PAD{}]", id);
    }
  }

 private:
  const JsonObject& tokenizer_;
  Vocabulary& vocabulary_;
  std::vector<bool> known_;
  int64_t holes_ = 0;
};

void refuse_variants(const JsonObject& model) {
  if (model.text_or("type", "BPE") != "BPE") model.refuse("type", "'BPE'");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text_or(key, "").empty()) model.refuse(key, "null");
  }
  if (model.has("dropout")) model.refuse("dropout", "null");
}

void add_base_tokens(const JsonObject& model, int rows, Vocabulary& vocabulary, TokenTable& table) {
  const std::optional<JsonObject> vocab = model.object("vocab");
  if (!vocab || vocab->value().empty()) model.refuse("vocab", "an object of tokens and their ids");
  // Ascending ids, so that holes are seen as such.
  std::vector<std::pair<int64_t, const std::string*>> by_id;
  for (auto token = vocab->value().begin(); token != vocab->value().end(); ++token) {
    const json& id = token.value();
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(rows)) {
      vocab->refuse(token.key(), fmt::format("an id below {}, config.json's vocab_size", rows));
    }
    by_id.emplace_back(id.get<int64_t>(), &token.key());
  }
  std::sort(by_id.begin(), by_id.end());
  const bool fallback = vocabulary.kind == Vocabulary::Kind::score_merges;
  for (const auto& [id, text] : by_id) {
    const bool byte = fallback && byte_of_byte_token(*text) >= 0;
    table.add(*text, id, byte ? TokenType::byte : TokenType::normal);
  }
}

/// Added tokens are cut out of the text before any merge; the special ones only where special text
/// is parsed. Ids of templates (<|...|>) count as special, whatever the file says, as in GGUF
/// files.
TokenType added_type(const JsonObject& token, const std::string& text, Vocabulary::Kind kind) {
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    if (token.boolean_or(key, false)) token.refuse(key, "false");
  }
  const bool templates = text.size() > 4 && text.starts_with("<|") && text.ends_with("|>");
  if (token.boolean_or("special", false) || templates) return TokenType::control;
  // Runs of U+2581 stand for spaces, which the merges find.
  const bool spaces = text.find("\xE2\x96\x81") != std::string::npos;
  return kind == Vocabulary::Kind::score_merges && spaces ? TokenType::normal
                                                          : TokenType::user_defined;
}

void add_added_tokens(const JsonObject& tokenizer, int rows, const Vocabulary& vocabulary,
                      TokenTable& table) {
  const json* added = tokenizer.array("added_tokens");
  std::vector<std::pair<int, JsonObject>> by_id;
  for (size_t i = 0; added != nullptr && i < added->size(); ++i) {
    const JsonObject token = tokenizer.element("added_tokens", i);
    by_id.emplace_back(token.integer("id", 0, kMostVocabulary), token);
  }
  std::sort(by_id.begin(), by_id.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [id, token] : by_id) {
    if (id >= rows) break;  // the model has no row for it
    const std::string text = token.text("content");
    if (text.empty()) token.refuse("content", "a text that is not empty");
    table.add(text, id, added_type(token, text, vocabulary.kind));
  }
}

/// "left right" as older files write a merge, or ["left", "right"].
void add_merges(const JsonObject& model, Vocabulary& vocabulary) {
  const json* merges = model.array("merges");
  if (merges == nullptr) model.refuse("merges", "an array");
  vocabulary.merges.reserve(merges->size());
  for (const json& merge : *merges) {
    const bool pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair && !merge.is_string()) {
      throw Error("{}: key 'model.merges[{}]' is {}; expected 'left right' or ['left', 'right']",
                  model.file(), vocabulary.merges.size(), shown(merge));
    }
    vocabulary.merges.push_back(pair ? merge[0].get<std::string>() + ' ' +
                                           merge[1].get<std::string>()
                                     : merge.get<std::string>());
  }
  if (vocabulary.kind == Vocabulary::Kind::score_merges && merges->empty()) {
    model.refuse("merges", "at least one merge");
  }
}

[[noreturn]] void unknown_token(const std::string& text, const std::string& file) {
  throw Error("{}: names the token {}, which tokenizer.json does not have", file, quote(text));
}

/// The names and ids of special tokens, from the files beside tokenizer.json.
class SpecialIds {
 public:
  SpecialIds(const fs::path& folder, const JsonObject& config, const Vocabulary& vocabulary)
      : config_(config), vocabulary_(vocabulary) {
    tokenizer_config_ = read_if_there(folder / "tokenizer_config.json");
    generation_ = read_if_there(folder / "generation_config.json");
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      ids_.emplace(vocabulary.tokens[id], static_cast<int32_t>(id));
    }
  }

  const std::optional<JsonObject>& tokenizer_config() const { return tokenizer_config_; }

  /// tokenizer_config.json names the token ("bos_token"); where it does not, an id is taken from
  /// the other two ("bos_token_id"). -1: there is none.
  int32_t find(const std::string& key) const {
    if (tokenizer_config_) {
      if (const json* token = tokenizer_config_->find(key)) {
        const std::string text = token->is_object()
                                     ? tokenizer_config_->object(key)->text("content")
                                     : tokenizer_config_->text(key);
        const auto found = ids_.find(text);
        if (found == ids_.end()) unknown_token(text, tokenizer_config_->file());
        return found->second;
      }
    }
    const std::vector<int32_t> ids = listed(key + "_id");
    return ids.empty() ? -1 : ids.front();
  }

  /// One id or several, from generation_config.json, else from config.json.
  std::vector<int32_t> listed(const std::string& key) const {
    const JsonObject& file = generation_ && generation_->has(key) ? *generation_ : config_;
    std::vector<int32_t> ids;
    const json* value = file.find(key);
    if (value == nullptr) return ids;
    const auto last = static_cast<int64_t>(vocabulary_.tokens.size()) - 1;
    if (!value->is_array()) return {file.integer(key, 0, last)};
    for (const json& id : *value) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(last)) {
        throw Error("{}: key {} holds {}; expected ids up to {}", file.file(), file.name(key),
                    shown(id), last);
      }
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }

 private:
  static std::optional<JsonObject> read_if_there(const fs::path& path) {
    std::error_code error;
    if (!fs::exists(path, error)) return std::nullopt;
    return JsonObject::read(path, "settings of a tokenizer or of generation");
  }

  const JsonObject& config_;
  const Vocabulary& vocabulary_;
  std::optional<JsonObject> tokenizer_config_, generation_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

/// chat_template.jinja where it is, else the key of tokenizer_config.json: one template, or several
/// with names, of which "default" is taken.
std::string read_template(const fs::path& folder, const std::optional<JsonObject>& config) {
  std::ifstream in(folder / "chat_template.jinja", std::ios::binary);
  if (in) return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  constexpr std::string_view kKey = "chat_template";
  const json* value = config ? config->find(kKey) : nullptr;
  if (value == nullptr) return {};
  if (!value->is_array()) return config->text(kKey);
  for (size_t i = 0; i < value->size(); ++i) {
    const JsonObject one = config->element(kKey, i);
    if (one.text("name") == "default") return one.text("template");
  }
  config->refuse(kKey, "a template named default among those listed");
}

}  // namespace

Vocabulary read_tokenizer_json(const JsonObject& tokenizer, int rows) {
  const std::optional<JsonObject> model = tokenizer.object("model");
  if (!model) tokenizer.refuse("model", "an object");
  refuse_variants(*model);
  Vocabulary vocabulary;
  vocabulary.name = tokenizer.file();
  vocabulary.keys = "model.";
  if (model->boolean_or("byte_fallback", false)) {
    vocabulary.kind = Vocabulary::Kind::score_merges;
    check_space_escapes(tokenizer);
    if (model->boolean_or("ignore_merges", false)) model->refuse("ignore_merges", "false");
  } else {
    vocabulary.pre_tokenizer = read_pre_tokenizer(tokenizer);
    vocabulary.whole_pieces = model->boolean_or("ignore_merges", false);
  }
  TokenTable table(tokenizer, vocabulary);
  add_base_tokens(*model, rows, vocabulary, table);
  add_added_tokens(tokenizer, rows, vocabulary, table);
  table.fill_holes();
  add_merges(*model, vocabulary);
  const std::string front = read_token_in_front(tokenizer);
  if (front.empty()) return vocabulary;
  const auto bos = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), front);
  if (bos == vocabulary.tokens.end()) unknown_token(front, tokenizer.file());
  vocabulary.bos = static_cast<int32_t>(bos - vocabulary.tokens.begin());
  vocabulary.add_bos = true;
  return vocabulary;
}

Vocabulary read_folder_vocabulary(const fs::path& folder, const JsonObject& config) {
  const JsonObject tokenizer = JsonObject::read(
      folder / "tokenizer.json", "the model's tokenizer as the tokenizers library saves it");
  Vocabulary vocabulary =
      read_tokenizer_json(tokenizer, config.integer("vocab_size", 1, kMostVocabulary));
  const SpecialIds specials(folder, config, vocabulary);
  if (!vocabulary.add_bos) vocabulary.bos = specials.find("bos_token");
  vocabulary.eos = specials.find("eos_token");
  vocabulary.more_stops = specials.listed("eos_token_id");
  if (const auto& settings = specials.tokenizer_config()) {
    vocabulary.add_bos = settings->boolean_or("add_bos_token", vocabulary.add_bos);
    if (vocabulary.add_bos && vocabulary.bos < 0) {
      settings->refuse("add_bos_token", "false where no file names a bos_token");
    }
  }
  vocabulary.chat_template = read_template(folder, specials.tokenizer_config());
  check(vocabulary);
  return vocabulary;
}

}  // namespace coppice
