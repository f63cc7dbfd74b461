// Libraries of the fake device: GEMMs are the host's, and attention has plans where a test asks for them.
#include "tests/fake_cuda/fake_libraries.hpp"

#include "exec/cuda/module/attention.hpp"
#include "exec/cuda/module/gemm.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "tests/emulated_device/emulated_device.hpp"

namespace stretto::cuda {

struct GemmRunner::Plan {};

// Keeps no plans.
GemmRunner::GemmRunner(int sms) : sms_(sms) {}
std::vector<std::string> GemmRunner::notes() const { return {}; }
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
thread_local std::vector<AttentionLaunch>* attention_launches = nullptr;

bool AttentionRunner::prepare(const Attention&, std::span<const exec::Operand>) {
  why_not_ = "not here";
  return attention_launches != nullptr;
}
std::int64_t AttentionRunner::workspace_bytes(const Attention&, std::span<const exec::Operand>) const { return 256; }
void AttentionRunner::run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace,
                          const Stream& stream) {
  attention_launches->push_back({workspace, stream.stream});
  emulate::submit(stream.stream, [work, operands] { host::run_work(work, operands); });
}

}  // namespace stretto::cuda
