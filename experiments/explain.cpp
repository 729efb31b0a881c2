// See explain.h.
#include "experiments/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/quote.h"
#include "decoding/packed_batch.h"
#include "kernels/shared/gumbel.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using Fate = ExplainedNode::Fate;

std::string shown(const Tokenizer& tokenizer, int32_t token) {
  return escape(tokenizer.token_text(token));
}

Fate fate_of(const TokenTree& tree, const std::vector<int>& path, int node) {
  if (node == 0) return Fate::root;
  if (tree.role(node) == NodeRole::probe) return Fate::probe;
  const auto kept = [&](int at) {
    return at == 0 || std::find(path.begin(), path.end(), at) != path.end();
  };
  if (kept(node)) return Fate::accepted;
  return kept(tree.parent(node)) ? Fate::rejected : Fate::not_reached;
}

std::string_view word_of(Fate fate) {
  constexpr std::string_view kWords[] = {"root", "accepted", "rejected", "not reached", "probe"};
  return kWords[static_cast<int>(fate)];
}

/// What the target gives the token behind its parent: warped, or without a temperature the softmax
/// of the scores that greedy compares.
double probability(TargetRows& target, int parent, int32_t token) {
  if (target.sampler().params().temperature > 0.0f) {
    return static_cast<double>(target.p(parent)[static_cast<size_t>(token)]);
  }
  const std::span<const float> scores = target.scores(parent);
  return std::exp(static_cast<double>(raw_log_probabilities(scores, token, 0).token));
}

std::string position_range(int first, int count) {
  return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

std::string question_text(const ExplainedQuestion& asked) {
  const Question& q = asked.question;
  switch (q.kind) {
    case Question::Kind::argmax:
      return fmt::format("behind node {}: the most likely token is \"{}\"", q.node, asked.text);
    case Question::Kind::coupled:
      return fmt::format("behind node {}: the target draws \"{}\" (its Gumbel noise there: {:.3f})",
                         q.node, asked.text, asked.noise);
    case Question::Kind::accept:
      return fmt::format("node {} \"{}\": the coin {:.4f} is {} {:.4f}: {}", q.node, asked.text,
                         q.uniform, q.accepted ? "below" : "not below", q.probability,
                         q.accepted ? "accepted" : "rejected");
    case Question::Kind::draw:
      return fmt::format("behind node {}: {:.4f} draws \"{}\" {}", q.node, q.uniform, asked.text,
                         q.purpose == Purpose::bonus ? "from p: the bonus token"
                                                     : "from what the rejected tokens left of p");
  }
  return "";
}

/// One line a node, children under their parents.
void draw_tree(const ExplainedStep& step, int parent, const std::string& indent, std::string& out) {
  std::vector<int> children;
  for (int node = 1; node < static_cast<int>(step.nodes.size()); ++node) {
    if (step.nodes[static_cast<size_t>(node)].parent == parent) children.push_back(node);
  }
  for (const int node : children) {
    const ExplainedNode& at = step.nodes[static_cast<size_t>(node)];
    const bool last = node == children.back();
    const std::string label = fmt::format("{} \"{}\"", node, at.text);
    out += fmt::format("  {}{} {}{}  p {:.3f}{}  {}\n", indent, last ? "└─" : "├─",
                       at.fate == Fate::accepted   ? "✓ "
                       : at.fate == Fate::rejected ? "✗ "
                                                   : "",
                       label, at.p, at.q ? fmt::format("  q {:.3f}", *at.q) : "", word_of(at.fate));
    draw_tree(step, node, indent + (last ? "   " : "│  "), out);
  }
}

}  // namespace

ExplainedStep explain_step(const JudgedStep& step, const Tokenizer& tokenizer) {
  const TokenTree& tree = *step.tree;
  TargetRows& target = *step.target;
  const SamplingParams& params = target.sampler().params();
  ExplainedStep out;
  out.position = target.root_position();
  out.first_position = step.first_position;
  out.trunk = step.trunk;
  out.warped = params.temperature > 0.0f;
  out.path = step.verdict->path;
  out.token = step.verdict->token;
  out.text = shown(tokenizer, out.token);
  const std::vector<int32_t> trunk(static_cast<size_t>(step.trunk), tree.token(0));
  PackedBatch packed;  // as the engine packed it
  packed.clear();
  packed.add(trunk, &tree, step.first_position, {}, true);
  for (int node = 0; node < tree.size(); ++node) {
    ExplainedNode at;
    at.row = packed.node_row(0)[static_cast<size_t>(node)];
    at.token = tree.token(node);
    at.text = shown(tokenizer, at.token);
    at.parent = tree.parent(node);
    at.probe = tree.role(node) == NodeRole::probe;
    at.score = tree.score(node);
    at.source = tree.source(node);
    at.fate = fate_of(tree, out.path, node);
    if (tree.q_row(node) != kPointMass) {
      at.q = static_cast<double>(tree.q.row(tree.q_row(node)).probability(at.token));
    }
    at.p = node == 0 ? 1.0 : probability(target, at.parent, at.token);
    out.nodes.push_back(std::move(at));
  }
  for (const Question& question : step.asked) {
    const bool judged = question.kind == Question::Kind::accept;
    ExplainedQuestion asked{question,
                            shown(tokenizer, judged ? tree.token(question.node) : question.token)};
    if (question.kind == Question::Kind::coupled && out.warped) {
      const int position = out.position + tree.depth(question.node) + 1;
      asked.noise = gumbel(target_noise(target.sampler().noise_key(), position, question.token));
    }
    out.asked.push_back(std::move(asked));
  }
  return out;
}

std::string explained_text(const ExplainedStep& step, const StepRecord& record) {
  std::string out = fmt::format("step {}, node 0 at position {}: \"{}\"\n", record.step,
                                step.position, step.nodes[0].text);
  if (record.prefill && step.trunk > 1) {
    out += fmt::format("  the prompt's positions {} are computed\n",
                       position_range(step.first_position, step.trunk));
  }
  if (step.nodes.size() == 1) out += "  no draft\n";
  draw_tree(step, 0, "", out);
  for (const ExplainedQuestion& asked : step.asked) {
    out += fmt::format("  {}\n", question_text(asked));
  }
  const int kept = step.trunk + std::max(record.emitted - 1, 0);
  std::string emitted;
  for (size_t i = 0; i < step.path.size() && static_cast<int>(i) < record.emitted; ++i) {
    emitted += fmt::format("\"{}\" ", step.nodes[static_cast<size_t>(step.path[i])].text);
  }
  if (record.emitted > static_cast<int>(step.path.size())) {
    emitted += fmt::format("\"{}\" ", step.text);
  }
  out += fmt::format(
      "  emitted: {}({} of {} drafted accepted{})\n", emitted, record.accepted, record.drafted,
      record.proposed > record.drafted
          ? fmt::format("; {} proposed ones were not worth a row", record.proposed - record.drafted)
          : "");
  out += fmt::format("  KV kept: {} of {} rows, positions {}\n\n", kept, record.rows,
                     position_range(step.first_position, kept));
  return out;
}

ordered_json explained_json(const ExplainedStep& step, const StepRecord& record) {
  ordered_json nodes = ordered_json::array(), asked = ordered_json::array();
  for (const ExplainedNode& node : step.nodes) {
    nodes.push_back({{"token", node.token},
                     {"text", node.text},
                     {"parent", node.parent},
                     {"row", node.row},
                     {"role", node.probe ? "probe" : "verify"},
                     {"q", node.q ? ordered_json(*node.q) : ordered_json(nullptr)},
                     {"p", node.p},
                     {"score", node.score},
                     {"source", node.source},
                     {"fate", word_of(node.fate)}});
  }
  constexpr std::string_view kKinds[] = {"argmax", "coupled", "accept", "draw"};
  for (const ExplainedQuestion& item : step.asked) {
    const Question& q = item.question;
    ordered_json out = {{"kind", kKinds[static_cast<int>(q.kind)]},
                        {"node", q.node},
                        {"says", question_text(item)}};
    if (q.kind == Question::Kind::accept) {
      out["probability"] = q.probability;
      out["coin"] = q.uniform;
      out["accepted"] = q.accepted;
    } else {
      out["token"] = q.token;
      out["text"] = item.text;
    }
    if (q.kind == Question::Kind::coupled) out["noise"] = item.noise;
    if (q.kind == Question::Kind::draw) {
      out["from"] = q.purpose == Purpose::bonus ? "bonus" : "residual";
      out["coin"] = q.uniform;
    }
    asked.push_back(std::move(out));
  }
  return {{"step", record.step},
          {"prefill", record.prefill},
          {"position", step.position},
          {"first_position", step.first_position},
          {"trunk", step.trunk},
          {"rows", record.rows},
          {"proposed", record.proposed},
          {"ms",
           {{"draft", record.draft_ms},
            {"target", record.target_ms},
            {"judge", record.judge_ms},
            {"other", record.other_ms}}},
          {"p_is_warped", step.warped},
          {"nodes", std::move(nodes)},
          {"asked", std::move(asked)},
          {"path", step.path},
          {"token", step.token},
          {"text", step.text},
          {"emitted", record.emitted},
          {"kv_kept", step.trunk + std::max(record.emitted - 1, 0)}};
}

}  // namespace coppice
