#pragma once
#include <string>

#include "interchange/imported.hpp"

namespace stretto {

// Command lines whose settings are in another file, which is read through ImportOptions::read.
struct CommandLine;

// NeMo-Framework-Launcher's `main.py training=llama/llama3_70b training.trainer.num_nodes=8 …` (24.12): the
// configuration conf/training/llama/llama3_70b.yaml, changed by the words that follow, as Hydra does. Stages are
// `training`, `fine_tuning` and `peft`. Throws Error(input) where the file is not found, and as from_recipe().
bool is_launcher_command(const CommandLine& line);
Translation from_launcher_command(const CommandLine& line, const std::string& name, const ImportOptions& options);

// torchtitan's `torchrun -m torchtitan.train --job.config_file llama3_8b.toml --training.steps 10` (until February
// 2026). Its later `--module llama3 --config llama3_8b` names a function in Python, which is an error that says so.
// Throws as from_torchtitan().
bool is_titan_command(const CommandLine& line);
Translation from_titan_command(const CommandLine& line, const std::string& name, const ImportOptions& options);

}  // namespace stretto
