#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "interchange/command_line.hpp"

namespace stretto {

// A configuration of Primus (AMD) whose trainer is Megatron-LM: `modules.pre_trainer`, or a trainer after it
// (`post_trainer`, `sft_trainer`), with `framework: megatron`,
// files of the model and of the module (primus/configs of the repository, found in a folder above), which `extends`
// others, and `overrides`. Returns the command line of these arguments; nothing for another document. Throws
// Error(input) where a file is not there, or extends itself.
std::optional<CommandLine> primus_command(const nlohmann::json& root, const std::string& name,
                                          const ImportOptions& options);

}  // namespace stretto
