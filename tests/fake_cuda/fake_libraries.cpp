// Libraries of the fake device: GEMMs are the host's, and attention has no plans.
#include "exec/cuda/module/attention.hpp"
#include "exec/cuda/module/gemm.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "tests/emulated_device/emulated_device.hpp"

namespace stretto::cuda {

struct GemmRunner::Plan {};

GemmRunner::GemmRunner(int sms) : sms_(sms) {}
GemmRunner::~GemmRunner() = default;
GemmRunner::Key GemmRunner::key_of(const Gemm&, std::span<const exec::Operand>) { return {}; }
bool GemmRunner::tune(const Gemm&, std::span<const exec::Operand> operands, const Stream&) {
  // As the real one, leaves nothing of worth in C.
  for (std::int64_t row = 0; row < operands.back().rows; ++row)
    static_cast<std::byte*>(operands.back().data)[row * operands.back().ld * bytes_of(operands.back().dtype)] =
        std::byte{1};
  return true;
}
void GemmRunner::run(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  emulate::submit(stream.stream, [work, operands] { host::run_work(work, operands); });
}

struct AttentionRunner::Plan {};

AttentionRunner::AttentionRunner() = default;
AttentionRunner::~AttentionRunner() = default;
bool AttentionRunner::prepare(const Attention&, std::span<const exec::Operand>) {
  why_not_ = "not here";
  return false;
}
std::int64_t AttentionRunner::workspace_bytes(const Attention&, std::span<const exec::Operand>) const { return 0; }
void AttentionRunner::run(const Attention&, std::span<const exec::Operand>, std::byte*, const Stream&) {}

}  // namespace stretto::cuda
