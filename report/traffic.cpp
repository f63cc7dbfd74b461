#include "report/traffic.hpp"

#include <algorithm>
#include <map>
#include <variant>

#include "model/ring.hpp"

namespace stretto {

std::int64_t sent_bytes(const Schedule& schedule, const Operation& operation) {
  if (!is_communication(operation.work)) return 0;
  const TensorId tensor = operation.accesses.front().view.tensor;
  const Dtype dtype = schedule.storages[schedule.tensors[tensor].places.front().storage].dtype;
  if (const auto* message = std::get_if<PointToPoint>(&operation.work))
    return message->is_send ? message->elements * bytes_of(dtype) : 0;
  const auto& collective = std::get<Collective>(operation.work);
  const std::int64_t members = schedule.communicators[collective.communicator].size;
  return ring_cost(collective.kind, dtype, collective.elements, members).edge_bytes;
}

Traffic traffic_of(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                   const Breakdown& mean, const Repeated& repeated) {
  const std::size_t count = schedule.communicators.size();
  std::vector<double> sent(count, 0), transfer_ms(count, 0);  // [communicator], sums over ranks
  constexpr double kCompute = -1;
  std::vector<double> bytes;  // [OpId]
  for (const Operation& operation : schedule.operations)
    bytes.push_back(is_communication(operation.work) ? double(sent_bytes(schedule, operation)) : kCompute);
  std::map<std::int64_t, const BoundProgram*> program_of;
  for (const BoundProgram& program : programs) program_of[program.rank] = &program;
  const BoundProgram* program = nullptr;
  for (const TimelineRow& row : timeline.rows) {
    if (program == nullptr || program->rank != row.rank) program = program_of.at(row.rank);
    const OpId op = program->ops[row.op].op;
    if (bytes[op] == kCompute) continue;
    const std::uint32_t c = communicator_of(schedule.operations[op].work);
    const auto count = double(repeated.count(row));
    sent[c] += count * bytes[op];
    transfer_ms[c] += count * to_ms(row.moved() - row.transfer);
  }
  Traffic traffic;
  const double ranks = std::max(1.0, double(programs.size()));
  for (std::size_t c = 0; c < count; ++c) {
    if (sent[c] == 0) continue;
    const double exposed_ms = to_ms(mean.exposed[c]) * ranks;
    const double hidden = transfer_ms[c] > 0 ? std::max(0.0, 1 - exposed_ms / transfer_ms[c]) : 0;
    traffic.sent_bytes += sent[c] / ranks;
    traffic.hidden_bytes += hidden * sent[c] / ranks;
    if (schedule.communicators[c].engine == CommEngine::sm)
      traffic.ctas = std::max(traffic.ctas, schedule.communicators[c].channels);
  }
  return traffic;
}

}  // namespace stretto
