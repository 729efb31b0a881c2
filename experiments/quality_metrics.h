// Figures of answers: what they share with a reference, whether they are right, how much they
// repeat. Sources: Lin 2004 (ROUGE-L), Cobbe 2021 (GSM8K's final answer), Welleck 2020 (seq-rep-n).
//
//   double f = rouge_l("the cat sat", "the cat is here");   // 2 words in order: 4/7
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

/// F1 of the longest common subsequence of words (runs of letters and digits, lower case; bytes
/// beyond ASCII are letters). 1 for the same words, 0 when either has none.
double rouge_l(std::string_view answer, std::string_view reference);
/// The number behind the last "####", else the last number of the text, without $ and thousands'
/// commas and with trailing zeros of a fraction cut; empty where there is none.
std::optional<std::string> final_number(std::string_view text);
/// Equal but for white space at the ends and runs of it.
bool exact_match(std::string_view answer, std::string_view reference);
/// Share of an answer's n-grams of 4 ids that it had before: 0 for no repetition and for fewer than
/// 5 ids.
double repetition_rate(std::span<const int32_t> ids);
/// Index of the first id that differs; empty when the answers are equal. An answer that ends where
/// the other goes on differs there.
std::optional<int> first_difference(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace coppice
