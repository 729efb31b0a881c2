// How a drafter that samples draws a token from its own logits: through the target's warps, in the
// way the rule asks for.
#pragma once

#include <span>

#include "decoding/drafter.h"

namespace coppice {

/// Draws a child of `parent` and adds it to the job's tree, with its q row when the draw is
/// independent. The node's index, or -1 when it could not stand in the tree.
int add_drawn(DraftJob& job, int parent, std::span<const float> logits);

}  // namespace coppice
