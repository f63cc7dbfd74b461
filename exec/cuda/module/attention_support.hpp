#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Returns why this version of cuDNN (91500 is 9.15.0) must not be used for this attention although it makes plans; ""
// where no fault is known. cudnn-frontend refuses, or masks, these cases too (its sdpa nodes).
std::string fault_of_cudnn(std::size_t version, const Attention& work);
// Returns why cuDNN of this version is not asked for a plan: a fault, or a form of attention for which there are no
// graphs (attention_graph.hpp). "" where it is asked.
std::string refusal_of_cudnn(std::size_t version, const Attention& work, std::span<const exec::Operand> operands);

}  // namespace stretto::cuda
