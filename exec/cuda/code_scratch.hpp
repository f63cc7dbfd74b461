#pragma once
#include <cstdint>
#include <string>

#include "exec/codes.hpp"
#include "exec/operand.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::cuda {

// cuBLASLt takes codes apart from the scales of their blocks (exec/cuda/kernels/code_operands.hpp), whose buffers have
// both, and rows of codes that begin at multiples of 16 bytes. A product therefore has its scales, and where its codes
// do not lie so, codes too, in the scratch of its lane. A tensor's factor must be at a multiple of 16 bytes, too (seen
// on an H200 with cuBLAS 13.0, which ran no algorithm otherwise; TransformerEngine's pull request 1925 says so
// for 12.9.1); factors of several tensors lie side by side, so those of a product are copied to the scratch where they
// do not fit.

constexpr std::int64_t kCodeRow_bytes = 16, kApart_bytes = 256;  // alignments of rows and of each part of the scratch
constexpr std::int64_t kFactors_bytes = kApart_bytes;            // of the tensors' factors
inline bool has_block_scales(const Gemm& work) { return rule_of(work.scaling_b).block > 0; }
// With scales of 128 codes cuBLASLt multiplies rows of A in multiples of this (exec/cuda/module/code_products.hpp).
constexpr std::int64_t kProductRows = 8;
// Returns whether the last rows of a product are a product of their own, in the scratch.
inline bool has_last_rows(const Gemm& work) {
  return work.scaling_a == Scaling::block_128 && work.m % kProductRows != 0;
}
// Return the bytes of the scratch that such rows take: of A, whose stored rows have `stored_cols` bytes, and of C.
inline std::int64_t last_rows_of_a_bytes(std::int64_t stored_cols) {
  return GroupedRows::rounded(kProductRows * GroupedRows::rounded(stored_cols, kCodeRow_bytes), kApart_bytes);
}
inline std::int64_t last_rows_of_c_bytes(std::int64_t n) {
  return GroupedRows::rounded(kProductRows * n * bytes_of(Dtype::f32), kApart_bytes);
}
// Returns the bytes from one row of codes to the next in the scratch.
inline std::int64_t apart_ld(const exec::Codes& codes) {
  return GroupedRows::rounded(codes.cols / codes.per_byte(), kCodeRow_bytes);
}
// Returns whether cuBLASLt reads the codes where they lie. An address of null is one that fits.
bool lies_well(const exec::Codes& codes);
// Returns whether cuBLASLt reads a tensor's factor where it lies.
bool lies_well(const exec::Operand& factor);
// Returns the bytes of a factor's part of the scratch.
std::int64_t apart_bytes(const exec::Codes& codes);
// Returns why a device of this compute capability (0: not known) has no products of codes that the schedule has, as an
// error of its key, or "". cuBLASLt has scales of 32 and 16 codes from 10.0 on, and of 128 on 9.0 alone, as it
// documents.
std::string problem_of_codes(const Schedule& schedule, double compute_capability);
// Returns the bytes of the scratch that a work needs besides cuBLAS's workspace: 0 for most.
std::int64_t code_scratch_bytes(const Work& work, Dtype a, Dtype b);
// Returns the bytes of a lane's scratch: cuBLAS's workspace and the most that a work of the lane needs.
std::int64_t scratch_bytes_of(const Schedule& schedule, LaneId lane);

}  // namespace stretto::cuda
