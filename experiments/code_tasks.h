// From an answer to the Python program that judges it (HumanEval, MBPP).
//
//   const std::string program = program_for(*prompt.code, answer);
#pragma once

#include <string>
#include <string_view>

#include "experiments/workload.h"

namespace coppice {

/// The first fenced block of an answer, else all of it. A block without an end ends with the
/// answer.
std::string code_of(std::string_view answer);
/// The answer's code, behind what it goes on from unless it defines the function itself, and the
/// tests.
std::string program_for(const CodeTask& task, std::string_view answer);

}  // namespace coppice
