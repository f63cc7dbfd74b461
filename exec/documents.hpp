#pragma once
#include <cstdint>
#include <span>

#include "exec/data.hpp"
#include "model/scenario.hpp"

namespace stretto::exec {

// Documents in the samples of a batch. A document ends with the token `end`, which belongs to it; the next one begins
// after it, and each sample begins one. No token is -1, which stands for no such token. `tokens` are the inputs of
// samples, one after the other.

// Writes for each token the position in its sample at which its document begins. `seq` divides the number of tokens.
void find_documents(std::span<const std::int32_t> tokens, std::int64_t seq, std::int64_t end,
                    std::span<std::int32_t> first_positions);

// Replaces the targets of tokens that end a document by kNoTarget.
void mask_ends(std::span<const std::int32_t> tokens, std::int64_t end, std::span<std::int32_t> targets);

// Returns the tokens of the step's global batch over those of them that end no document; 0 where all end one. Reads the
// whole global batch. Throws as fill_batch() does.
double loss_weight(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t end);

// Returns the scenario with the mean length of its data's documents where attention does not cross documents, and it
// states none: of the first 2^20 tokens of each path's first file. Data that cannot be read change nothing.
Scenario with_measured_documents(Scenario scenario);

}  // namespace stretto::exec
