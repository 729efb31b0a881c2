// See oracle.h.
#include "drafters/oracle.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace coppice {
namespace {

bool begins_with(const std::vector<int32_t>& text, std::span<const int32_t> tokens) {
  return text.size() > tokens.size() && std::equal(tokens.begin(), tokens.end(), text.begin());
}

}  // namespace

Oracle::Oracle(const OracleOptions& options) : depth_(options.depth) {
  std::ifstream in(options.answers, std::ios::binary);
  if (!in) throw Error("oracle: answers: {} cannot be read", options.answers);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) {
      throw Error("oracle: {}:{}: is no JSON object; give one answer a line", options.answers,
                  number);
    }
    try {
      std::vector<int32_t> text = json.value("prompt_ids", std::vector<int32_t>());
      if (text.empty()) continue;  // a run writes the prompt to its baseline's rows alone
      for (const auto& id : json.at("ids")) text.push_back(id.get<int32_t>());
      texts_.push_back(std::move(text));
    } catch (const nlohmann::json::exception&) {
      throw Error("oracle: {}:{}: prompt_ids and ids are no lists of token ids", options.answers,
                  number);
    }
  }
  if (texts_.empty()) {
    throw Error("oracle: {}: no line holds prompt_ids; record the answers anew", options.answers);
  }
}

// The first recorded text that goes on from these tokens; null: none does.
const std::vector<int32_t>* Oracle::find(SeqId sequence, std::span<const int32_t> tokens) {
  if (static_cast<size_t>(sequence) >= followed_.size()) {
    followed_.resize(static_cast<size_t>(sequence) + 1);
  }
  size_t& followed = followed_[static_cast<size_t>(sequence)];
  while (followed < texts_.size() && !begins_with(texts_[followed], tokens)) ++followed;
  return followed < texts_.size() ? &texts_[followed] : nullptr;
}

void Oracle::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    const std::vector<int32_t>* text = find(job.sequence, job.tokens);
    if (text == nullptr) continue;
    const auto rest = std::span(*text).subspan(job.tokens.size());
    int node = 0;
    for (int32_t token : rest.first(std::min(rest.size(), static_cast<size_t>(depth_)))) {
      node = job.tree->add({.parent = node, .token = token});
      if (node < 0) break;
    }
  }
}

void Oracle::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < followed_.size()) {
    followed_[static_cast<size_t>(sequence)] = 0;
  }
}

}  // namespace coppice
