#pragma once
#include <string>

#include "interchange/imported.hpp"

namespace stretto {

struct CommandLine;

// Megatron-Bridge's launchers of benchmarks, `scripts/performance/setup_experiment.py -m llama -mr llama3_70b -ng 64
// -g h100 -c bf16 …` and the run_script.py that it starts (067f987d, August 2026): a performance recipe
// (perf_recipes.hpp), changed by Hydra's words and then by the options, as utils/overrides.py does. Settings are those
// of that commit; commands of earlier releases are read as if they were given to it.
bool is_benchmark_program(const std::string& program);
bool is_benchmark_command(const CommandLine& line);
// Throws Error(input) as scenario_of(), for options that are missing or that Bridge refuses, and where there is no
// recipe of the model, task, GPU and precision, naming the nearest one.
Translation from_benchmark_command(const CommandLine& line, const std::string& name, const ImportOptions& options);

}  // namespace stretto
