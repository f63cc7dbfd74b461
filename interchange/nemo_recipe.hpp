#pragma once
#include <string>
#include <string_view>

#include "interchange/imported.hpp"

namespace stretto {

// Reads Python: keyword arguments of CommOverlapConfig (from_bridge()), or a program that takes one recipe of NeMo 2 by
// its name, `llm.llama3_8b.pretrain_recipe(num_nodes=2, num_gpus_per_node=8)`, and changes it by assignments to
// `.trainer.strategy`, `.trainer`, `.data` and `.model.config`. The recipe's settings are those of Megatron-Bridge's
// recipe of that name, which a note says. Throws Error(input) for other programs, with what would help.
Translation from_python(std::string_view text, const std::string& name, const ImportOptions& options);

}  // namespace stretto
