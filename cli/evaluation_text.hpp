#pragma once
#include <string>

#include "exec/trainer.hpp"

namespace stretto::cli {

// Returns the line that `train` and `evaluate` print of a loss on validation data.
std::string evaluation_text(const exec::Evaluation& evaluation);

}  // namespace stretto::cli
