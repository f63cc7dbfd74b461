#include "exec/ready_step.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/rng.hpp"

namespace stretto::exec {

ReadyStep::ReadyStep(Scenario given, Schedule built, const Machine& machine, const RunOptions& options,
                     const TokenSource& tokens, const Fill& fill)
    : scenario(std::move(given)),
      verified(plan_and_verify(std::move(built))),
      all(unfolded(verified.schedule, verified)),
      executor(machine.make(verified, options)) {
  const MemoryOf memory = memory_of(*executor);
  fill(schedule, scenario, memory);
  write_batch(schedule, scenario, tokens, 0, memory);
  write_hyper(schedule, scenario, 0, memory);
  executor->upload(Executor::Contents::state);
  executor->upload(Executor::Contents::inputs);
}

TokenSource tokens_of(const Scenario& scenario) {
  const Training& training = scenario.training;
  if (!training.data.empty()) return TokenSource::open(training.data, training.data_weights);
  const Transformer& model = scenario.model;
  const auto values = static_cast<std::uint64_t>(std::min<std::int64_t>(model.vocab_size, 256));
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::max<std::int64_t>(1 << 16, 2 * model.seq_length)));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte(random_bits(scenario.training.seed, stream_of("compare"), i) % values);
  return TokenSource::parse(std::move(bytes), "random.txt");
}

}  // namespace stretto::exec
