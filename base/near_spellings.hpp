#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// Returns at most `count` of the candidates, the most similar first: those that share most words with `word`
// (words of "cpu_offloading" are "cpu" and "offloading"), and of equal ones those with most pairs of letters in common.
// One without such a pair is not near.
std::vector<std::string> near_spellings(std::string_view word, const std::vector<std::string>& candidates,
                                        std::size_t count);

}  // namespace stretto
