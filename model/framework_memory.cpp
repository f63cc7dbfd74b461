#include "model/framework_memory.hpp"

#include "base/error.hpp"
#include "base/toml.hpp"

namespace stretto {
namespace {

void read_cross_entropy(TomlTable table, FrameworkMemory& m) {
  m.cross_entropy = require<std::vector<std::int64_t>>(table, "steps");
  m.cross_entropy_source = read_source(table);
  table.finish();
  std::map<std::int64_t, int> blocks = {{2, 1}};
  for (const std::int64_t step : m.cross_entropy)
    if ((blocks[step < 0 ? -step : step] += step < 0 ? -1 : 1) < 0 || step == 0)
      throw table.error("steps", "sizes that are allocated before they are freed");
  int left = 0;
  for (const auto& [bytes, count] : blocks) left += count;
  if (left == 0) throw table.error("steps", "a block that is left, the gradient");
}

}  // namespace

void read_framework_memory(TomlTable table, FrameworkMemory& m) {
  if (!table.present()) return;
  m.is_known = true;
  const auto allocator =
      value_or<std::string>(table, "allocator", m.expandable_segments ? "expandable_segments" : "segments");
  if (allocator != "segments" && allocator != "expandable_segments")
    throw table.error("allocator", "\"segments\" or \"expandable_segments\"");
  m.expandable_segments = allocator == "expandable_segments";
  const auto own = [&](const char* key, std::optional<Quantity>& quantity, Limits<double> limits) {
    if (table.has(key)) quantity = read_quantity(table.section(key), limits);
  };
  own("gradient", m.gradient, {.min = 1, .max = 8});
  own("master", m.master, {.min = 0, .max = 4});
  own("userbuffers", m.userbuffers, {.min = 0, .max = 1e3});
  own("libraries", m.libraries, {.min = 0, .max = 1e11});
  m.casts_to_gather = value_or<bool>(table, "casts_to_gather", m.casts_to_gather);
  m.root_unit_stays = value_or<bool>(table, "root_unit_stays", m.root_unit_stays);
  m.copies_out_of_gathers = value_or<bool>(table, "copies_out_of_gathers", m.copies_out_of_gathers);
  m.repeats_kv_heads = value_or<bool>(table, "repeats_kv_heads", m.repeats_kv_heads);
  m.has_dummy_weight_gradients = value_or<bool>(table, "dummy_weight_gradients", m.has_dummy_weight_gradients);
  m.has_dummy_head_gradient = value_or<bool>(table, "dummy_head_gradient", m.has_dummy_head_gradient);
  TomlTable kept = table.section("kept"), during = table.section("during"), loss = table.section("cross_entropy");
  table.finish();
  for (const std::string& name : activation_spellings())
    if (kept.has(name)) m.kept[*activation_role(name)] = read_quantity(kept.section(name), {.min = -8, .max = 1e3});
  kept.finish();
  for (const std::string& kind : during.keys())
    m.during[kind] = read_quantity(during.section(kind), {.min = 0, .max = 1e3});
  during.finish();
  if (loss.present()) read_cross_entropy(std::move(loss), m);
}

}  // namespace stretto
