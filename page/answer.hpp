#pragma once
#include <string>

namespace stretto::page {

constexpr const char* kDataFolder = "/data";  // has the files of scenarios/ (page/worker.js)

// Answers one request of the page: JSON to JSON. Requests are objects with `what`:
//
//   lists     all that the page offers: `scenarios`, `platforms`, `profiles`, `presets`, `keys`
//   (model/scenario/keys.hpp;
//             those of the form first, in `first`), `bars` (kinds of bars and their colours), `css`
//   step      `simulate`: what `stretto simulate --json` prints; `shown`: the tables that it prints; `headline`: the
//             figures in short; `values`: the value of every key; `gates`: as `stretto show --gates` has them; `set`:
//             all overrides, with that of `gpus`; `platform` and `profile`: their names;
//             `stages_memory`: as stages_memory_json() (page/cluster.hpp)
//   strip     the whole step as bars: strip_json() (page/strip.hpp)
//   window    operations of one GPU in a span of the step: window_json() (page/window.hpp). `gpu` (absent: 0), `from`
//             and `to` in picoseconds, `most` operations, `critical`: whether those of the critical path are marked
//   cluster   all GPUs, and the groups of `gpu` (absent: 0): cluster_json() (page/cluster.hpp)
//   texts     `toml`: the scenario with its overrides; `command`; `megatron` {`text`, `notes`} or {`error`}
//   start     `toml`: a scenario to begin with, for `model`, a preset or the path of a config.json of Hugging Face's
//   limits    `simulate` with `path`, `numbers`, `machines` and `changes`, as `stretto simulate --limits` prints them,
//             and `tables` with these as text
//   interval  `step_low_ms`, `step_high_ms`, `interval_from` of `simulate`
//   changes   `changes`: all that may be tried from here [{`change`, `key`, `kind`, `set`}] (page/trials.hpp)
//   try       the step `with` further overrides and on `with_platform`, against the step without them
//   search    all legal layouts, the best of them simulated: search_of() (page/search.hpp), in parts
//   ratio     the entry in `changes` of `stretto simulate A B` for B, which is `other`, a request
//   import    `toml` and `notes` of a dropped script or configuration, `name` and `text` (page/imported.hpp)
//   diagnose  a run against the predicted step: diagnosed_json() (page/diagnosed.hpp). `trace`: the path of the trace
//   hardware  `machines` of `simulate --limits`, and `first`, the number on which the step depends most
//
// All others take `scenario` (a name, or the path of a file), `platform` (a name; absent: the scenario's), `set` (a
// list of "section.key=value") and `gpus` (0: as the scenario says; otherwise data-parallel ranks make up this number).
// `with_interval` of step and limits: `simulate` has the interval too, which takes as long as dozens of short steps.
// Answers to a wrong request have one key, `error`, the line that the command prints.
std::string answer(const std::string& request);

}  // namespace stretto::page
