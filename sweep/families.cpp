#include "sweep/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace stretto::sweep {
namespace {

// The settings that a family's costs do not depend on.
bool is_of_pipeline(const std::string& setting) {
  for (const char* key :
       {"parallel.pipeline_model_parallel_size=", "parallel.virtual_pipeline_model_parallel_size=",
        "parallel.pipeline_model_parallel_layout=", "parallel.data_parallel_size=", "training.global_batch_size="})
    if (setting.starts_with(key)) return true;
  return false;
}

std::string key_of(const Families::Member& member) {
  std::string key = member.platform.name;
  for (const std::string& setting : member.set)
    if (!is_of_pipeline(setting)) key += "\n" + setting;
  const std::int64_t stages = member.scenario.parallel.pipeline_model_parallel_size;
  return key + (stages > 1 ? "\nstages" : "");
}

}  // namespace

template <class Value>
const Value* Families::Known<Value>::get(const std::string& key, const std::function<Value()>& make) {
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex);
    auto& at = slots[key];
    if (!at) at = std::make_unique<Slot>();
    slot = at.get();
  }
  std::call_once(slot->once, [&] {
    try {
      slot->value = make();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
    }
  });
  return slot->value ? &*slot->value : nullptr;
}

const TimeFamily* Families::times(const Member& member) {
  if (!has_family(member.scenario, member.platform)) return nullptr;
  const Parallel& parallel = member.scenario.parallel;
  return times_.get(
      key_of(member) + (parallel.shards_gradients() ? fmt::format("\n{}", parallel.data_parallel_size) : ""),
      [&] { return time_family(member.scenario, member.platform); });
}

const MemoryFamily* Families::memory(const Member& member) {
  if (!has_family(member.scenario, member.platform)) return nullptr;
  return memory_.get(fmt::format("{}\n{} {}", key_of(member), member.scenario.parallel.data_parallel_size,
                                 micro_batches_of_memory(member.scenario)),
                     [&] { return memory_family(member.scenario, member.platform); });
}

ModelElements Families::elements(const Member& member) {
  // The vocabulary's padding depends on tensor parallelism.
  std::string key = fmt::format("tp {}\n", member.scenario.parallel.tensor_model_parallel_size);
  for (const std::string& setting : member.set)
    if (setting.starts_with("model.")) key += setting + "\n";
  const ModelElements* known = elements_.get(key, [&] { return elements_of(member.scenario.model); });
  return known != nullptr ? *known : ModelElements{};
}

}  // namespace stretto::sweep
