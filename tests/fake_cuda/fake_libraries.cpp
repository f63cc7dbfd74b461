// Libraries of the fake device: the host computes GEMMs, and attention has plans where a test asks for them.
#include "tests/fake_cuda/fake_libraries.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/code_scratch.hpp"
#include "exec/cuda/kernels/attention_seed.hpp"
#include "exec/cuda/module/attention.hpp"
#include "exec/cuda/module/code_products.hpp"
#include "exec/cuda/module/codes_apart.hpp"
#include "exec/cuda/module/gemm.hpp"
#include "exec/cuda/module/grouped_gemm.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "tests/emulated_device/emulated_device.hpp"

namespace stretto::cuda {

struct GemmRunner::Plan {};

// This runner keeps no plans.
GemmRunner::GemmRunner(int sms, Epilogues) : sms_(sms) {}
std::vector<std::string> GemmRunner::notes() const { return {}; }
GemmRunner::~GemmRunner() = default;
GemmRunner::Key GemmRunner::key_of(const Gemm&, std::span<const exec::Operand>) { return {}; }
bool GemmRunner::tune(const Gemm&, std::span<const exec::Operand> operands, const Stream&) {
  // Like the real one, it leaves nothing of value in C.
  for (std::int64_t row = 0; row < operands.back().rows; ++row)
    static_cast<std::byte*>(operands.back().data)[row * operands.back().ld * bytes_of(operands.back().dtype)] =
        std::byte{1};
  return true;
}
void GemmRunner::run(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  run_untuned(work, operands, stream);
}
// This runner refuses products of codes that cuBLASLt refuses.
void GemmRunner::run_untuned(const Gemm& whole, std::span<const exec::Operand> of_whole, const Stream& stream) {
  for_each_product(
      whole, of_whole, stream, [](const Gemm& work, std::span<const exec::Operand> operands, const Stream& on) {
        const auto refuse = [&](const char* why) { throw runtime_failure(describe(Work(work)) + ": " + why); };
        std::vector<exec::Operand> all(operands.begin(), operands.end());
        if (work.has_factors() && !has_block_scales(work)) {
          all = codes_apart(work, operands, on, true).operands;
          for (std::size_t i : {work.inverse_index(), work.inverse_index() + 1})
            if (!lies_well(all[i])) refuse("a factor is not aligned");
        }
        if (work.has_codes() && work.bias && operands[2].dtype != Dtype::bf16) refuse("a bias in f32");
        if (work.scaling_a == Scaling::block_128 && work.m % 8 != 0) refuse("rows are no multiple of 8");
        emulate::submit(on.stream, [work, all = std::move(all)] { host::run_work(work, all); });
      });
}

GroupedGemmRunner::GroupedGemmRunner(int) {}
GroupedGemmRunner::~GroupedGemmRunner() = default;
void GroupedGemmRunner::run(const GroupedGemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  emulate::submit(stream.stream, [work, all = std::vector<exec::Operand>(operands.begin(), operands.end())] {
    host::run_work(work, all);
  });
}

struct AttentionRunner::Plan {};

AttentionRunner::AttentionRunner() = default;
AttentionRunner::~AttentionRunner() = default;
thread_local std::vector<AttentionLaunch>* attention_launches = nullptr;
thread_local std::vector<AttentionSeed>* attention_seeds = nullptr;
thread_local bool (*fake_cudnn_has_plan)(const Attention& work) = nullptr;

bool AttentionRunner::prepare(const Attention& work, std::span<const exec::Operand> operands, const Stream*) {
  why_not_ = "not here";
  return has_plan(work, operands);
}
bool AttentionRunner::has_plan(const Attention& work, std::span<const exec::Operand>) const {
  return attention_launches != nullptr && (fake_cudnn_has_plan == nullptr || fake_cudnn_has_plan(work));
}
std::vector<std::string> AttentionRunner::notes() const { return {}; }
std::int64_t AttentionRunner::workspace_bytes(const Attention&, std::span<const exec::Operand>) const { return 256; }
void AttentionRunner::run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace,
                          const Stream& stream) {
  attention_launches->push_back({work.pass, workspace, stream.stream});
  if (work.dropout > 0 && attention_seeds != nullptr) {
    const auto* const seed = reinterpret_cast<const std::int64_t*>(workspace);
    write_attention_seed(operands.back(), work.first_head.value(), reinterpret_cast<std::int64_t*>(workspace), stream);
    emulate::submit(stream.stream, [=, to = attention_seeds, pass = work.pass] {
      to->push_back({pass, seed[0], seed[1]});
    });
  }
  emulate::submit(stream.stream, [work, operands] { host::run_work(work, operands); });
}

}  // namespace stretto::cuda
