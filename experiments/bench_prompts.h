// The prompts that a config names, in the order and number that it asks for.
//
//   std::vector<Prompt> prompts = load_prompts(config);
#pragma once

#include <vector>

#include "experiments/bench_config.h"
#include "experiments/workload.h"

namespace coppice {

/// Not encoded yet. Throws Error for a file that is not there, a line that cannot be read (with its
/// number), two prompts of one id.
std::vector<Prompt> load_prompts(const BenchConfig& config);

}  // namespace coppice
