// See scripted.h.
#include "drafters/scripted.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "core/quote.h"

namespace coppice {
namespace {

struct ScriptNode {
  int parent = 0;
  int32_t token = 0;
  NodeRole role = NodeRole::verify;
};
/// The nodes behind node 0, as a tree numbers them.
using ScriptStep = std::vector<ScriptNode>;

[[noreturn]] void refuse(std::string_view step, std::string_view word, int vocabulary) {
  throw Error(
      "scripted: step {}: {} is no token; write paths of ids below {} such as \"17 4 | 17 5 | ?3\"",
      quote(step), quote(word), vocabulary);
}

ScriptStep parse_step(std::string_view text, int vocabulary) {
  ScriptStep step;
  int parent = 0;
  NodeRole role = NodeRole::verify;
  for (size_t begin = text.find_first_not_of(' '); begin < text.size();
       begin = text.find_first_not_of(' ', begin)) {
    const size_t end =
        text[begin] == '|' ? begin + 1 : std::min(text.find_first_of(" |", begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (word == "|") {
      parent = 0;
      role = NodeRole::verify;
      continue;
    }
    if (word.front() == '?') {
      role = NodeRole::probe;
      word.remove_prefix(1);
    }
    ScriptNode node{parent, -1, role};
    const auto read = std::from_chars(word.data(), word.data() + word.size(), node.token);
    if (read.ec != std::errc() || read.ptr != word.data() + word.size() || node.token < 0 ||
        node.token >= vocabulary) {
      refuse(text, word, vocabulary);
    }
    const auto there = std::find_if(step.begin(), step.end(), [&](const ScriptNode& other) {
      return other.parent == node.parent && other.token == node.token && other.role == node.role;
    });
    parent = static_cast<int>(there - step.begin()) + 1;
    if (there == step.end()) step.push_back(node);
  }
  return step;
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error("scripted: file: {} cannot be read", quote(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Scripted::Scripted(const ScriptedOptions& options, int vocabulary) {
  if (!options.steps.empty() && !options.file.empty()) {
    throw Error("scripted: steps and file exclude each other; give one");
  }
  std::vector<ScriptStep> steps;
  for (const std::string& text : options.file.empty() ? options.steps : lines_of(options.file)) {
    steps.push_back(parse_step(text, vocabulary));
    most_nodes_ = std::max(most_nodes_, static_cast<int>(steps.back().size()));
  }
  script_ = [this, steps = std::move(steps)](DraftJob& job) {
    if (static_cast<size_t>(job.sequence) >= done_.size()) {
      done_.resize(static_cast<size_t>(job.sequence) + 1);
    }
    const size_t at = done_[static_cast<size_t>(job.sequence)]++;
    if (at >= steps.size()) return;
    std::vector<int> added = {0};  // a node without room has none below it
    for (const ScriptNode& node : steps[at]) {
      const int parent = added[static_cast<size_t>(node.parent)];
      added.push_back(
          parent < 0 ? -1
                     : job.tree->add({.parent = parent, .token = node.token, .role = node.role}));
    }
  };
}

void Scripted::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < done_.size()) done_[static_cast<size_t>(sequence)] = 0;
}

}  // namespace coppice
