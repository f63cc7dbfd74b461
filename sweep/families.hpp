#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sweep/bounds.hpp"
#include "sweep/family.hpp"

namespace stretto::sweep {

// Families that have been built, each once, for scenarios that differ by settings alone. Thread-safe.
class Families {
 public:
  // A scenario, and what distinguishes it from others: its overrides ("section.key=value") and the platform's name.
  struct Member {
    const Scenario& scenario;
    const sim::Platform& platform;
    const std::vector<std::string>& set;
  };
  // Return null where the closed forms do not know the scenario, or its small pipelines cannot be built.
  const TimeFamily* times(const Member& member);
  const MemoryFamily* memory(const Member& member);
  ModelElements elements(const Member& member);

 private:
  template <class Value>
  struct Known {
    struct Slot {
      std::once_flag once;
      std::optional<Value> value;
    };
    std::mutex mutex = {};
    std::map<std::string, std::unique_ptr<Slot>> slots = {};

    // Makes the value once, while other values are made; nullptr where it is refused.
    const Value* get(const std::string& key, const std::function<Value()>& make);
  };

  Known<TimeFamily> times_;
  Known<MemoryFamily> memory_;
  Known<ModelElements> elements_;
};

}  // namespace stretto::sweep
