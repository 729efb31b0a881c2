// See sequence.h.
#include "decoding/sequence.h"

namespace coppice {

Sequence::Sequence(RequestId number, Request asked, const Tokenizer* tokenizer, int vocabulary)
    : id(number),
      request(std::move(asked)),
      sampler(request.sampling, vocabulary,
              request.ignore_eos ? std::span<const int32_t>(request.stop.tokens)
                                 : std::span<const int32_t>()),
      watch(tokenizer, request.stop),
      tokens(request.prompt) {}

StepRecord Sequence::record(bool with_tree) const {
  StepRecord record;
  record.id = id;
  record.request = request.sampling.request;
  record.prefill = answer.steps == 0;
  record.step = answer.steps;
  record.position = static_cast<int>(tokens.size()) - emitted - 1;
  record.trunk = trunk;
  record.emitted = emitted;
  for (const ProposedNode& node : proposed) {
    record.proposed_tokens.push_back(node.token);
    record.proposed_parents.push_back(node.parent);
    record.proposed += node.role == NodeRole::verify && node.parent >= 0;
  }
  const auto is_verify = [&](int node) { return tree.role(node) == NodeRole::verify; };
  for (int node = 1; node < tree.size(); ++node) {
    ++(is_verify(node) ? record.drafted : record.probes);
  }
  if (proposed.empty()) record.proposed = record.drafted;
  if (decides) {
    record.accepted = static_cast<int>(verdict.path.size());
    record.reached = record.accepted;
    const int last = verdict.path.empty() ? 0 : verdict.path.back();
    for (int child = tree.first_child(last); child >= 0; child = tree.next_sibling(child)) {
      if (!is_verify(child)) continue;
      ++record.reached;  // one position more was judged, and failed
      break;
    }
  }
  if (with_tree) {
    for (int node = 0; node < tree.size(); ++node) {
      record.tree_tokens.push_back(tree.token(node));
      record.tree_parents.push_back(tree.parent(node));
    }
    record.tree_path.assign(verdict.path.begin(), verdict.path.end());
    record.tokens.assign(tokens.end() - emitted, tokens.end());
  }
  return record;
}

}  // namespace coppice
