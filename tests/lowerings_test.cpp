// The two ways in which model/lower makes the blocks of layers: written operation by operation, or derived from forward
// graphs. Identifiers and the order in which tensors are made may differ; nothing that a step does may.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "model/lower/lower.hpp"
#include "model/schedule/derive.hpp"
#include "model/schedule/plan.hpp"
#include "tests/random_layout.hpp"

namespace stretto::testing {
namespace {

Schedule lowered(const Scenario& scenario, Lowering lowering, bool* is_derived = nullptr) {
  Lowered made = lower_plain(scenario, parameter_classes, lowering);
  derive_waits(made.schedule, made.free);
  if (is_derived != nullptr) *is_derived = made.is_derived;
  return std::move(made.schedule);
}

// Compares two schedules by names.
class Comparison {
 public:
  Comparison(const Schedule& written, const Schedule& derived) : written_(written), derived_(derived) {
    compare_blocks();
    if (lines_.empty()) compare_orders();
    if (!lines_.empty()) return;  // differences of buffers then follow
    compare_tensors();
    const std::int64_t before = plan_memory(written).peak_bytes(), after = plan_memory(derived).peak_bytes();
    if (before != after) differs("peak", std::to_string(before), std::to_string(after));
  }
  const std::vector<std::string>& differences() const { return lines_; }
  std::int64_t operations() const { return operations_; }

 private:
  void differs(const std::string& what, const std::string& written, const std::string& derived) {
    lines_.push_back(what + ": " + written + " written, " + derived + " derived");
  }

  static std::map<std::string, const Block*> by_name(const Schedule& schedule) {
    std::map<std::string, const Block*> blocks;
    for (const Block& block : schedule.blocks) blocks[block.name] = &block;
    return blocks;
  }
  static std::vector<std::string> names(const Schedule& schedule, const Block& block) {
    std::vector<std::string> all;
    for (const OpId id : block.ops) all.push_back(schedule.operations[id].name);
    return all;
  }
  // The names of one list around the first one that differs from the other's.
  static std::string around(const std::vector<std::string>& names, std::size_t at) {
    std::string all = "number " + std::to_string(at) + ":";
    for (std::size_t i = at > 0 ? at - 1 : 0; i < std::min(names.size(), at + 4); ++i) all += " " + names[i];
    return all;
  }

  void compare_blocks() {
    const auto written = by_name(written_), derived = by_name(derived_);
    for (const auto& [name, block] : written) {
      const auto other = derived.find(name);
      if (other == derived.end())
        differs("block " + name, "it is", "it is not");
      else
        compare(*block, *other->second);
    }
    if (written.size() != derived.size())
      differs("blocks", std::to_string(written.size()), std::to_string(derived.size()));
  }

  void compare(const Block& written, const Block& derived) {
    const std::vector<std::string> names_written = names(written_, written), names_derived = names(derived_, derived);
    operations_ += std::ssize(written.ops);
    const auto at = static_cast<std::size_t>(
        std::mismatch(names_written.begin(), names_written.end(), names_derived.begin(), names_derived.end()).first -
        names_written.begin());
    if (names_written != names_derived)
      return differs("operations of " + written.name, around(names_written, at), around(names_derived, at));
    for (std::size_t i = 0; i < written.ops.size(); ++i)
      compare(written_.operations[written.ops[i]], derived_.operations[derived.ops[i]]);
    const auto equal = [](const BlockWait& a, const BlockWait& b) {
      return a.op == b.op && a.kind == b.kind && a.on == b.on;
    };
    if (!std::equal(written.waits.begin(), written.waits.end(), derived.waits.begin(), derived.waits.end(), equal))
      differs("waits of " + written.name, std::to_string(written.waits.size()), std::to_string(derived.waits.size()));
  }

  static std::string text(const Schedule& schedule, const Access& access) {
    const View& v = access.view;
    return std::to_string(static_cast<int>(access.mode)) + " " + schedule.tensors[v.tensor].name + "[" +
           v.layer.text() + "][" + v.slot.text() + "]+" + v.offset.text() + " " + std::to_string(v.rows) + "x" +
           std::to_string(v.cols) + "/" + std::to_string(v.ld);
  }

  void compare(const Operation& written, const Operation& derived) {
    const std::string& name = written.name;
    if (!(written.work == derived.work)) differs(name + " work", describe(written.work), describe(derived.work));
    if (written.phase != derived.phase) differs(name + " phase", name_of(written.phase), name_of(derived.phase));
    if (written.lane != derived.lane)
      differs(name + " lane", written_.lanes[written.lane].name, derived_.lanes[derived.lane].name);
    if (written.module != derived.module) differs(name + " module", name_of(written.module), name_of(derived.module));
    if (written.recomputed != derived.recomputed || written.codes_of != derived.codes_of)
      differs(name + " recomputed", std::to_string(static_cast<int>(written.recomputed)),
              std::to_string(static_cast<int>(derived.recomputed)));
    if (written.accesses.size() != derived.accesses.size())
      return differs(name + " operands", std::to_string(written.accesses.size()),
                     std::to_string(derived.accesses.size()));
    for (std::size_t i = 0; i < written.accesses.size(); ++i) {
      Access in_names = derived.accesses[i];
      const View& before = written.accesses[i].view;
      const bool is_equal_name = written_.tensors[before.tensor].name == derived_.tensors[in_names.view.tensor].name;
      in_names.view.tensor = before.tensor;
      if (!is_equal_name || !(in_names == written.accesses[i]))
        differs(name + " operand " + std::to_string(i), text(written_, written.accesses[i]),
                text(derived_, derived.accesses[i]));
    }
  }

  std::string text(const Schedule& schedule, const Call& call) const {
    std::string line = schedule.blocks[call.block].name;
    for (const std::int64_t number : {call.layer, call.micro_batch, call.chunk, call.slot, call.buffer,
                                      std::int64_t{call.first}, std::int64_t{call.count}})
      line += " " + std::to_string(number);
    for (const Edge& edge : call.waits)
      line += ", waits for " + schedule.operations[edge.on.op].name + " " + std::to_string(edge.on.layer) + " " +
              std::to_string(edge.on.micro_batch) + " " + std::to_string(edge.on.steps_ago);
    return line;
  }

  void compare_orders() {
    for (std::size_t p = 0; p < written_.programs.size(); ++p) {
      const std::vector<Call>&written = written_.programs[p].order, &derived = derived_.programs[p].order;
      for (std::size_t i = 0; i < std::min(written.size(), derived.size()); ++i)
        if (text(written_, written[i]) != text(derived_, derived[i]))
          return differs("call " + std::to_string(i), text(written_, written[i]), text(derived_, derived[i]));
      if (written.size() != derived.size())
        differs("calls", std::to_string(written.size()), std::to_string(derived.size()));
    }
  }

  // The storages of a tensor: kind, type, size, and how many there are.
  static std::map<std::string, std::string> tensors(const Schedule& schedule) {
    std::map<std::string, std::string> all;
    for (const Operation& operation : schedule.operations)
      for (const Access& access : operation.accesses) {
        const Tensor& tensor = schedule.tensors[access.view.tensor];
        std::set<StorageId> storages;
        for (const TensorPlace& place : tensor.places) storages.insert(place.storage);
        const Storage& first = schedule.storages[*storages.begin()];
        all[tensor.name] = std::string(name_of(first.kind)) + " of type " +
                           std::to_string(static_cast<int>(first.dtype)) + " " + std::to_string(first.elements) +
                           " elements (" + std::to_string(first.filled) + " filled), " + std::to_string(tensor.rows) +
                           "x" + std::to_string(tensor.cols) + ", " + std::to_string(storages.size()) +
                           " storages of " + std::to_string(tensor.places.size()) + " places, role " +
                           std::to_string(static_cast<int>(tensor.role));
      }
    return all;
  }

  void compare_tensors() {
    const auto derived = tensors(derived_);
    for (const auto& [name, text] : tensors(written_))
      if (text != derived.at(name)) differs("tensor " + name, text, derived.at(name));
  }

  const Schedule &written_, &derived_;
  std::vector<std::string> lines_;
  std::int64_t operations_ = 0;
};

std::int64_t number_of(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

}  // namespace

TEST_CASE("lowerings: blocks that are derived are those that are written", "[lowerings]") {
  const bool in_codes = GENERATE(false, true);
  const std::int64_t first = number_of("STRETTO_FIRST_SEED", 1), count = number_of("STRETTO_SEEDS", 150);
  std::int64_t derived_layouts = 0, equal = 0, operations = 0;
  for (std::int64_t seed = first; seed < first + count; ++seed) {
    const RandomLayout layout = in_codes ? random_layout_in_codes(static_cast<std::uint64_t>(seed))
                                         : random_layout(static_cast<std::uint64_t>(seed));
    bool is_derived = false;
    const Schedule derived = lowered(layout.scenario, Lowering::derived, &is_derived);
    if (!is_derived) continue;
    ++derived_layouts;
    const Comparison comparison(lowered(layout.scenario, Lowering::written), derived);
    operations += comparison.operations();
    equal += comparison.differences().empty();
    if (comparison.differences().empty()) continue;
    std::string text = "seed " + std::to_string(seed) + "\n";
    for (const std::string& line : comparison.differences()) text += "  " + line + "\n";
    if (equal + 20 > derived_layouts) UNSCOPED_INFO(text + layout.toml);
    CHECK(comparison.differences().empty());
  }
  CAPTURE(equal, derived_layouts, operations);
  CHECK(derived_layouts > count / 10);
  if (count != 150) WARN(equal << " of " << derived_layouts << " layouts, " << operations << " operations");
}

}  // namespace stretto::testing
