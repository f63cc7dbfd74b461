#include "exec/cuda/module/codes_apart.hpp"

#include "base/error.hpp"
#include "exec/cuda/code_scratch.hpp"
#include "exec/cuda/kernels/code_operands.hpp"

namespace stretto::cuda {
namespace {

class Apart {
 public:
  Apart(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream, bool starts)
      : work_(work), operands_(operands), on_(stream), starts_(starts) {
    apart_.operands.assign(operands.begin(), operands.end());
    apart_.stream = stream;
  }

  CodesApart run() {
    if (!has_block_scales(work_)) {
      if (work_.has_factors()) align();
      return std::move(apart_);
    }
    const exec::Operand c = apart_.operands.back();
    apart_.operands.pop_back();
    const exec::Operand scales_a = take(0, exec::codes_of_a(work_, operands_[0])),
                        scales_b = take(1, exec::codes_of_b(work_, operands_[1]));
    apart_.operands.insert(apart_.operands.end(), {scales_a, scales_b, factors(c), c});
    return std::move(apart_);
  }

 private:
  void* part(std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(GroupedRows::rounded(bytes, kApart_bytes));
    if (size > apart_.stream.scratch_bytes)
      throw runtime_failure("codes and scales of " + describe(Work(work_)) +
                            " do not fit into the scratch of its lane");
    apart_.stream.scratch_bytes = (apart_.stream.scratch_bytes - size) / kApart_bytes * kApart_bytes;
    return static_cast<std::byte*>(on_.scratch) + apart_.stream.scratch_bytes;
  }
  // Replaces a factor by its codes alone, and returns its scales.
  exec::Operand take(std::size_t i, const exec::Codes& codes) {
    exec::Operand& alone = apart_.operands[i];
    alone.rows = codes.rows;
    alone.cols = codes.cols / codes.per_byte();
    alone.ld = codes.ld;
    if (!lies_well(codes)) {
      alone.ld = apart_ld(codes);
      alone.data = part(codes.rows * alone.ld);
      if (starts_) copy_codes(codes, alone.data, alone.ld, on_);
    }
    exec::Operand scales = alone;
    scales.rows = 1;
    scales.cols = scales.ld = scale_grid_of(codes.scaling, codes.along, codes.rows, codes.cols).bytes;
    scales.data = part(scales.cols);
    if (starts_) arrange_scales(codes, scales.data, on_);
    return scales;
  }
  // The place in the scratch is taken in any case, because a plan that was chosen with some addresses serves others.
  void align() {
    auto* place = static_cast<float*>(part(2 * kFactor_bytes));
    const std::size_t first = work_.inverse_index();
    if (lies_well(operands_[first]) && lies_well(operands_[first + 1])) return;
    if (starts_)
      align_factors(static_cast<const float*>(operands_[first].data),
                    static_cast<const float*>(operands_[first + 1].data), place, on_);
    for (std::size_t i = 0; i < 2; ++i) apart_.operands[first + i].data = place + i * kFactor_bytes / sizeof(float);
  }
  exec::Operand factors(const exec::Operand& c) {
    exec::Operand factors{part(2 * sizeof(float)), Dtype::f32, 1, 2, 2, AccessMode::read};
    if (!starts_ || !work_.has_factors()) return factors;
    const auto inverse = [&](std::size_t which) {
      return static_cast<const float*>(operands_[work_.inverse_index() + which].data);
    };
    multiply_factors(inverse(0), inverse(1), c.mode == AccessMode::accumulate ? 1.0f : 0.0f,
                     static_cast<float*>(factors.data), on_);
    return factors;
  }

  const Gemm& work_;
  const std::span<const exec::Operand> operands_;
  const Stream& on_;
  const bool starts_;
  CodesApart apart_;
};

}  // namespace

CodesApart codes_apart(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream, bool starts) {
  return Apart(work, operands, stream, starts).run();
}

}  // namespace stretto::cuda
