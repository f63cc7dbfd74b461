#include "model/overlap/serial_reductions.hpp"

#include "model/schedule/gradient_reduction.hpp"

namespace stretto {

void serialise_reductions(Schedule& schedule) {
  for (Program& program : schedule.programs) {
    std::vector<OpAddress> pending;
    for (Call& call : program.order) {
      const Block& block = schedule.blocks[call.block];
      for (std::uint32_t i = call.first; i < call.first + call.count; ++i) {
        const Operation& operation = schedule.operations[block.ops[i]];
        if (reduces_gradients(schedule, operation)) {
          pending.push_back({block.ops[i], call.layer, call.micro_batch, call.chunk, 0});
        } else if (i == call.first && schedule.lanes[operation.lane].kind == LaneKind::compute) {
          for (const OpAddress& reduction : pending) call.waits.push_back({EdgeKind::finish_start, reduction});
          pending.clear();
        }
      }
    }
  }
}

}  // namespace stretto
