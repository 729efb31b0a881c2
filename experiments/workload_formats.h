// The formats in which prompts come, each told by its keys; see parse_prompts() in workload.h.
//
//   Prompt prompt = parse_object(json, "question.jsonl:12", 12);
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "experiments/workload.h"

namespace coppice {

/// `number` names a prompt that has no id. Throws Error beginning with `place`.
Prompt parse_object(const nlohmann::json& object, std::string_view place, size_t number);

/// Of the noise address: a hash of a prompt's id (FNV-1a, 32 bits).
uint32_t request_of(std::string_view id);

}  // namespace coppice
