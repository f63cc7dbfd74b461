#include "exec/cuda/module/window_layout.hpp"

#include <variant>

namespace stretto::cuda {
namespace {

// FNV-1a, over whole words.
void add(std::uint64_t& sum, std::uint64_t word) { sum = (sum ^ word) * 0x100000001b3u; }

}  // namespace

std::map<NcclGroup, std::uint64_t> window_layouts(const BoundProgram& program, const NcclGroups& groups,
                                                  const OperandsOf& operands, std::span<const std::byte> arena) {
  std::map<NcclGroup, std::uint64_t> layouts;
  for (const NcclGroup& group : groups.all) {
    if (group.kind != NcclGroup::Kind::collectives) continue;
    std::uint64_t& layout = layouts.emplace(group, 0xcbf29ce484222325u).first->second;
    add(layout, arena.size());
  }
  for (const std::vector<std::uint32_t>& lane : program.lanes)
    for (const std::uint32_t op : lane) {
      const auto* collective = std::get_if<Collective>(&program.work_of(op));
      if (collective == nullptr) continue;
      const auto layout = layouts.find(groups.of_op[op]);
      if (layout == layouts.end()) continue;
      const auto reach = [&](const void* data) {
        add(layout->second, static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - arena.data()));
      };
      // A rank's own shard is read and written only by itself.
      const std::span<const exec::Operand> of_op = operands(0, op);
      if (collective->kind != CollectiveKind::all_gather) reach(of_op.front().data);
      if (collective->kind != CollectiveKind::reduce_scatter) reach(of_op.back().data);
    }
  return layouts;
}

}  // namespace stretto::cuda
