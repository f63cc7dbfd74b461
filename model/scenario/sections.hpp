#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "base/values_of.hpp"
#include "model/scenario.hpp"

namespace stretto {

// Internal to the scenario reader: readers of one section each. All throw Error(input) as docs/scenario.md says.

using Integers = Limits<std::int64_t>;
using Numbers = Limits<double>;

// Limits far above all real sizes, but low enough that products of sizes stay within 64 bits.
constexpr std::int64_t kMaxLayers = 1 << 14;
constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxFfn = 1 << 22;
constexpr std::int64_t kMaxExperts = 1 << 12;
constexpr std::int64_t kMaxHeadDim = 1 << 12;
constexpr std::int64_t kMaxTokens = 1 << 24;  // sequence, positions, tokens of a micro-batch
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxRanks = 1 << 24;
constexpr std::int64_t kMaxTensorParallel = 1 << 10;
constexpr std::int64_t kMaxContextParallel = 1 << 10;
constexpr std::int64_t kMaxPipeline = 1 << 10;       // stages, and chunks of one: each is bound and simulated
constexpr std::int64_t kMaxRanksOnDevice = 1 << 10;  // all code that looks at a schedule distinguishes them one by one
constexpr std::int64_t kMaxMicroBatch = 1 << 16;
constexpr std::int64_t kMaxGlobalBatch = std::int64_t{1} << 32;
constexpr std::int64_t kMaxLayerCalls = 1 << 22;  // layers × micro-batches of one step: the length of an order
constexpr double kMaxBytes = double(std::int64_t{1} << 60);

inline std::string number(std::int64_t value) { return std::to_string(value); }

template <class Enum>
std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const Enum value : values_of<Enum>()) names.push_back(name_of(value));
  return names;
}

template <class Enum>
Enum named(const std::string& name) {
  const auto values = values_of<Enum>();
  return *std::find_if(values.begin(), values.end(), [&](Enum value) { return name == name_of(value); });
}

// Returns the elements of an array; a single value is an array of one.
template <class Enum>
std::vector<Enum> enums_or(TomlTable& table, const char* key, Enum fallback) {
  std::vector<Enum> values;
  for (const std::string& name : choices_or(table, key, name_of(fallback), names_of_all<Enum>()))
    values.push_back(named<Enum>(name));
  return values;
}

// Returns the table of a section, with other frameworks' spellings of its keys declared (docs/scenario.md lists them).
TomlTable section_of(TomlTable& root, const std::string& name);
// `folder` is the folder of the scenario file, to which hf_config is relative.
Transformer read_model(TomlTable table, const Parallel& parallel, const std::filesystem::path& folder);
Parallel read_parallel(TomlTable table);
// Checks that the layout divides the dimensions that it cuts; `table` is [parallel].
void check_layout(const TomlTable& table, const Transformer& model, const Parallel& parallel);
Overlap read_overlap(TomlTable table, const Parallel& parallel);
// `by_default` has the defaults that the platform decides.
Training read_training(TomlTable table, const Parallel& parallel, const Transformer& model, const Training& by_default);
// Documents of a scenario: their lengths, and the sequences that hold them.
struct Documents {
  DocumentLengths lengths;
  PackedSequences packed;
};
// Reads the files of documents that the training names, relative to `folder`, and sets the batch that
// global_batch_documents asks for; `training` is [training]. `known` keeps what was read and drawn, by a text that
// names it.
void read_documents(
    const TomlTable& table, const std::filesystem::path& folder, Scenario& scenario,
    const std::function<const Documents&(const std::string&, const std::function<Documents()>&)>& known);
// Checks a pipeline's requirements on the micro-batches; training must have been read.
void check_pipeline(const TomlTable& table, const Scenario& scenario);

}  // namespace stretto
