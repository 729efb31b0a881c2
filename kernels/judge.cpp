// The op Judge on the host, for backends whose logits stand there and as the device's oracle. See
// kernels/shared/judge.h.
#include "kernels/shared/judge.h"

#include <vector>

#include "kernels/base/error.h"

namespace coppice {

void judge(const Judge& op) {
  COPPICE_CHECK(op.logits != nullptr && op.node != nullptr && op.verdict != nullptr);
  COPPICE_CHECK(op.nodes > 0 && op.vocabulary > 0 && op.window >= 0);
  LoneTeam team;
  const auto vocabulary = static_cast<size_t>(op.vocabulary);
  std::vector<float> floats(2 * vocabulary);
  std::vector<double> doubles(3 * vocabulary);
  const JudgeScratch scratch{floats.data(), doubles.data(), floats.data() + vocabulary,
                             doubles.data() + vocabulary, doubles.data() + 2 * vocabulary};
  if (op.rule == Judge::Rule::rejection) {
    walk_by_rejection(team, op, scratch);
    return;
  }
  std::vector<int32_t> token(static_cast<size_t>(op.nodes));
  for (int node = 0; node < op.nodes; ++node) token[node] = judged_token(team, op, node, scratch);
  walk_tokens(team, op, token.data());
}

}  // namespace coppice
