// What a caller asks of requests that the engine has: to end or interrupt one, to hand out answers.
// See engine.h.
#include <algorithm>

#include "decoding/engine.h"
#include "decoding/sequence.h"
#include "kernels/base/error.h"

namespace coppice {

void Engine::cancel(RequestId id) {
  Sequence& sequence = find(id);
  if (!sequence.finished()) end(sequence, Finish::cancelled);
}

void Engine::preempt(RequestId id) {
  Sequence& sequence = find(id);
  if (sequence.on_cache()) release(sequence, Reason::preempted);
}

Sequence& Engine::find(RequestId id) const {
  const auto found = std::find_if(sequences_.begin(), sequences_.end(),
                                  [&](const auto& s) { return s->id == id; });
  COPPICE_CHECK(found != sequences_.end());
  return **found;
}

const Answer& Engine::answer(RequestId id) const {
  return find(id).answer;
}

Answer Engine::take(RequestId id) {
  Sequence& sequence = find(id);
  COPPICE_CHECK(sequence.finished());
  Answer answer = std::move(sequence.answer);
  std::erase_if(sequences_, [&](const auto& s) { return s->id == id; });
  return answer;
}

int Engine::running() const {
  return static_cast<int>(std::count_if(sequences_.begin(), sequences_.end(), [](const auto& s) {
    return !s->finished() && s->on_cache();
  }));
}

}  // namespace coppice
