#pragma once
// For tests of kernels: operands of random data, on the host and on the device, and comparisons of them. Kernels run on
// a GPU in gpu_tests (STRETTO_ON_GPU), everywhere else with their threads emulated. Shapes are [rows, cols] in
// elements; sizes in bytes are named so.
#if defined(STRETTO_ON_GPU)
#include <cuda_runtime.h>
#endif

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bf16.hpp"
#include "base/rng.hpp"
#include "exec/cuda/kernels/launch_work.hpp"
#include "exec/cuda/module/gemm.hpp"
#include "exec/cuda/module/product_groups.hpp"
#if defined(STRETTO_ON_GPU)
#include "exec/cuda/module/attention.hpp"
#include "exec/cuda/module/attention_support.hpp"
#include "exec/cuda/module/cudnn_api.hpp"
#include "exec/cuda/module/grouped_gemm.hpp"
#else
#include "tests/emulated_device/emulated_device.hpp"
#endif
#include "exec/host/kernels/kernels.hpp"
#include "model/schedule/operands.hpp"

namespace stretto::cuda {

// Returns whether mixed precision keeps an operand in f32.
inline bool is_kept_wide(const Work& work, const std::string& name) {
  if (std::holds_alternative<Route>(work) || std::holds_alternative<BalanceLoss>(work) ||
      std::holds_alternative<MeanCounts>(work) || std::holds_alternative<CountLoads>(work) ||
      std::holds_alternative<MoveBias>(work))
    return true;
  if (std::holds_alternative<WeightedActivation>(work)) return name == "p" || name == "dp";
  static const std::set<std::string> kNames = {"stats", "lse",  "lses", "dgamma", "dbeta", "dwte",
                                               "dwpe",  "grad", "m",    "v",      "master"};
  const bool is_squared = std::holds_alternative<SumSquares>(work) && name == "x",
             is_bias_gradient = std::holds_alternative<Elementwise>(work) && name == "db";
  const auto* gemm = std::get_if<Gemm>(&work);
  const bool is_sum_of_gemm =
      gemm && (name == "S" || (gemm->epilogue == GemmEpilogue::bias_gradient && (name == "X" || name == "C")));
  return kNames.contains(name) || is_squared || is_bias_gradient || is_sum_of_gemm;
}

// Elements between rows. A sanitizer's build takes one gap that forbids packs and one that allows them: without a gap
// an access beyond the end of a row hides in the next row.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kGaps[] = {3, 8};
#else
constexpr std::int64_t kGaps[] = {0, 3, 8};
#endif

struct Buffer {
  std::vector<std::byte> bytes;
  exec::Operand operand;
  std::string name;

  double at(std::int64_t row, std::int64_t col) const {
    const std::byte* p = bytes.data() + (row * operand.ld + col) * bytes_of(operand.dtype);
    switch (operand.dtype) {
      case Dtype::f64:
        return *reinterpret_cast<const double*>(p);
      case Dtype::f32:
        return *reinterpret_cast<const float*>(p);
      case Dtype::bf16:
        return to_float(*reinterpret_cast<const Bf16*>(p));
      case Dtype::i32:
        return *reinterpret_cast<const std::int32_t*>(p);
      case Dtype::e4m3:  // its bits, which must be equal
      case Dtype::e5m2:
      case Dtype::e2m1x2:
        return std::to_integer<int>(*p);
      case Dtype::i16:
        return *reinterpret_cast<const std::int16_t*>(p);
      case Dtype::f16:  // no kernel takes it
        break;
    }
    return 0;
  }
  void set(std::int64_t row, std::int64_t col, double value) {
    std::byte* p = bytes.data() + (row * operand.ld + col) * bytes_of(operand.dtype);
    switch (operand.dtype) {
      case Dtype::f64:
        *reinterpret_cast<double*>(p) = value;
        return;
      case Dtype::f32:
        *reinterpret_cast<float*>(p) = static_cast<float>(value);
        return;
      case Dtype::bf16:
        *reinterpret_cast<Bf16*>(p) = to_bf16(static_cast<float>(value));
        return;
      case Dtype::i32:
        *reinterpret_cast<std::int32_t*>(p) = static_cast<std::int32_t>(value);
        return;
      case Dtype::e4m3:
      case Dtype::e5m2:
      case Dtype::e2m1x2:
        *p = static_cast<std::byte>(static_cast<int>(value));
        return;
      case Dtype::i16:
        *reinterpret_cast<std::int16_t*>(p) = static_cast<std::int16_t>(value);
        return;
      case Dtype::f16:
        return;
    }
  }
};

// Returns the type of the codes of a work.
inline Dtype format_of(const Work& work) {
  return std::visit(
      [](const auto& one) {
        if constexpr (requires { one.format; })
          return one.format;
        else
          return Dtype::e4m3;
      },
      work);
}

// Maps a random number in [-1, 1) to a valid value, for operands that cannot hold every number.
inline double shaped(const std::string& name, std::int64_t col, double value, const Work& work) {
  if (name == "v") return value * value;
  if (name == "norm_squared") return 30;
  if (name == "hyper") {
    constexpr double hyper[8] = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.271, 0.1426};
    return hyper[col];
  }
  if (name == "packed") {
    // Any byte is valid, but scales are near 1.
    const ScaledCast& cast = std::get<ScaledCast>(work);
    const double byte = std::floor((value + 1) * 127);
    return col % cast.packed() >= cast.elements ? std::floor(127 + value * 9) : byte == 127 ? 126 : byte;
  }
  if (name == "scale" && std::holds_alternative<Quantise>(work)) return 1.5 + value;
  if (const auto* quantise = std::get_if<Quantise>(&work); quantise != nullptr && quantise->of_codes && name == "x") {
    // Any code but NaN, and scales near 1 after them.
    const double byte = std::floor((value + 1) * 127);
    return col >= quantise->cols ? std::floor(127 + value * 9) : byte == 127 ? 126 : byte;
  }
  if (name == "codes") return std::floor((value + 1) * 127);
  if (name == "x" && std::holds_alternative<ScaledCast>(work)) {
    // The blocks have many magnitudes, one has only zeros, and some numbers are far below the largest of their block.
    const std::int64_t block = col / kScaleBlock;
    return block % 7 == 3 ? 0 : value * std::exp2(double(block % 60) - 30) * (col % 5 == 0 ? 1e-3 : 1);
  }
  if (name == "key" && !std::holds_alternative<LatentHeads>(work)) return std::floor(value * 1e6);
  if (name == "loads") return std::floor((value + 1) * 4);  // some are equal, and some are the mean
  if (name == "mask") return std::floor(value * 8) * 0x100 + std::floor(value * value * 2);
  if (name == "tokens") return std::floor((value + 1) / 2 * double(std::get<Embedding>(work).vocab));
  if (name == "targets") {
    const std::int64_t classes = std::holds_alternative<VocabStats>(work) ? std::get<VocabStats>(work).classes
                                                                          : std::get<CrossEntropy>(work).classes;
    return std::floor((value + 1) / 2 * double(classes));
  }
  // The sums among [shards, 3 · rows] are positive.
  if (name == "stats" && std::holds_alternative<CrossEntropy>(work)) {
    const std::int64_t rows = std::get<CrossEntropy>(work).rows;
    return col / rows == 1 ? 2 + value : value;
  }
  return value;
}

// Returns `count` of the numbers [0, end) in a random order that depends on `seed`.
inline std::vector<std::int64_t> drawn(std::int64_t count, std::int64_t end, std::uint64_t seed) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(end));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto other = static_cast<std::size_t>(uniform(seed, 11, i) * double(i + 1));
    numbers[i] = static_cast<std::int64_t>(i);
    std::swap(numbers[i], numbers[other]);
  }
  numbers.resize(static_cast<std::size_t>(count));
  return numbers;
}

// Integers by which other operands are read: experts of tokens, in ascending order; rows of copies, some without one
// where there may be such; offsets of groups, some of them empty, that leave a part of the room.
inline void set_integers(Buffer& buffer, const Work& work) {
  const exec::Operand& o = buffer.operand;
  const auto set_offsets = [&](std::int64_t first, std::int64_t groups, std::int64_t rows) {
    std::vector<std::int64_t> ends;
    for (std::int64_t g = 1; g < groups; ++g)
      ends.push_back(static_cast<std::int64_t>(
          uniform(5, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(g)) * double(rows + 1)));
    std::sort(ends.begin(), ends.end());
    buffer.set(0, first, 0);
    for (std::int64_t g = 1; g < groups; ++g) buffer.set(0, first + g, double(ends[static_cast<std::size_t>(g - 1)]));
    buffer.set(0, first + groups, double(rows));
  };
  if (buffer.name == "indices") {
    std::int64_t experts = 0;
    std::visit(
        [&](const auto& one) {
          if constexpr (requires { one.experts; }) experts = one.experts;
        },
        work);
    for (std::int64_t row = 0; row < o.rows; ++row) {
      std::vector<std::int64_t> chosen = drawn(o.cols, experts, static_cast<std::uint64_t>(row));
      std::sort(chosen.begin(), chosen.end());
      for (std::int64_t j = 0; j < o.cols; ++j) buffer.set(row, j, double(chosen[static_cast<std::size_t>(j)]));
    }
  } else if (buffer.name == "positions") {
    const auto& permute = std::get<Permute>(work);
    const std::int64_t copies = permute.tokens * permute.copies, rows = permute.matrix_rows();
    const std::vector<std::int64_t> order = drawn(copies, std::max(copies, rows), 3);
    for (std::int64_t row = 0; row < o.rows; ++row)
      for (std::int64_t j = 0; j < o.cols; ++j) {
        const std::int64_t at = order[static_cast<std::size_t>(row * o.cols + j)];
        buffer.set(row, j, double(at < rows && (permute.rows == 0 || at % 5 != 2) ? at : -1));
      }
  } else if (buffer.name == "offsets") {
    std::visit(
        [&](const auto& one) {
          if constexpr (requires {
                          one.groups;
                          one.capacity;
                        })
            set_offsets(0, one.groups, one.rows);
        },
        work);
  } else if (buffer.name == "all") {
    std::visit(
        [&](const auto& one) {
          if constexpr (requires {
                          one.ranks;
                          one.capacity;
                        })
            for (std::int64_t rank = 0; rank < one.ranks; ++rank)
              set_offsets(rank * (one.experts + 1), one.experts, one.capacity / one.ranks);
        },
        work);
  }
}

inline std::vector<Buffer> buffers_of(const Work& work, Dtype dtype, std::int64_t gap,
                                      const std::vector<bool>& accumulates) {
  const OperandList list = operands_of(work, 1);
  REQUIRE(list.error.empty());
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < list.operands.size(); ++i) {
    const OperandSpec& spec = list.operands[i];
    Buffer buffer;
    buffer.name = spec.name;
    const bool is_wide = is_kept_wide(work, spec.name);
    buffer.operand.dtype = spec.type == OperandType::i32     ? Dtype::i32
                           : spec.type == OperandType::f64   ? Dtype::f64
                           : spec.type == OperandType::codes ? format_of(work)
                           : spec.type == OperandType::e4m3  ? Dtype::e4m3
                           : spec.type == OperandType::f32   ? Dtype::f32
                           : is_wide                         ? Dtype::f32
                                                             : dtype;
    const bool is_column = buffer.name == "tokens" || buffer.name == "targets";
    buffer.operand.rows = is_column ? spec.cols : spec.rows;
    buffer.operand.cols = is_column ? 1 : spec.cols;
    if (const auto* loss = std::get_if<CrossEntropy>(&work); loss != nullptr && buffer.name == "stats") {
      buffer.operand.rows = loss->shards;
      buffer.operand.cols = 3 * loss->rows;
    }
    // Transposed codes of groups follow one another.
    const auto* quantise = std::get_if<Quantise>(&work);
    const bool is_transposed = quantise != nullptr && quantise->groups > 0 && buffer.name == "column_codes";
    const bool may_have_gaps =
        (spec.shape == OperandShape::matrix || spec.shape == OperandShape::table) && !is_transposed;
    buffer.operand.ld = buffer.operand.cols + (may_have_gaps && spec.rows > 1 ? gap : 0);
    const std::string modes = spec.modes;
    buffer.operand.mode = modes == "R"                                        ? AccessMode::read
                          : modes == "A" || (modes == "WA" && accumulates[0]) ? AccessMode::accumulate
                                                                              : AccessMode::write;
    buffer.bytes.assign(
        static_cast<std::size_t>(buffer.operand.rows * buffer.operand.ld * bytes_of(buffer.operand.dtype)),
        std::byte{0xff});
    if (buffer.operand.mode != AccessMode::write)
      for (std::int64_t row = 0; row < buffer.operand.rows; ++row)
        for (std::int64_t col = 0; col < buffer.operand.cols; ++col) {
          const double value = 2 * uniform(i, 7, static_cast<std::uint64_t>(row * buffer.operand.cols + col)) - 1;
          const double of_operand = shaped(buffer.name, col, value, work);
          // Codes that are moved are any bytes.
          buffer.set(row, col,
                     is_code(dtype) && is_code(buffer.operand.dtype) ? std::floor((value + 1) * 127) : of_operand);
        }
    if ((is_of_experts(work) || buffer.name == "offsets") && buffer.operand.dtype == Dtype::i32 &&
        buffer.operand.mode == AccessMode::read)
      set_integers(buffer, work);
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

inline std::vector<exec::Operand> bound(std::vector<Buffer>& buffers) {
  std::vector<exec::Operand> operands;
  for (Buffer& buffer : buffers) {
    buffer.operand.data = buffer.bytes.data();
    operands.push_back(buffer.operand);
  }
  return operands;
}

// Checks equal bits where nothing may be written; results must agree within `tolerance` of the largest of them.
inline void check_same(const std::vector<Buffer>& device, const std::vector<Buffer>& host,
                       const std::vector<Buffer>& before, double tolerance) {
  for (std::size_t i = 0; i < device.size(); ++i) {
    const exec::Operand& o = device[i].operand;
    INFO("operand " << i << ", " << device[i].name);
    if (o.mode == AccessMode::read) {
      CHECK(device[i].bytes == before[i].bytes);
      continue;
    }
    const auto width = static_cast<std::size_t>(bytes_of(o.dtype));
    bool gaps_untouched = true;
    double worst = 0, largest = 0;
    for (std::int64_t row = 0; row < o.rows; ++row) {
      for (std::int64_t col = 0; col < o.cols; ++col) {
        const double a = device[i].at(row, col), b = host[i].at(row, col);
        if (std::isinf(b) && a == b) continue;
        if (std::isnan(a) && std::isnan(b)) continue;  // neither has written there
        if (std::isfinite(b)) largest = std::max(largest, std::abs(b));
        if (!(std::abs(a - b) <= worst)) worst = std::isnan(a - b) ? INFINITY : std::abs(a - b);
      }
      const std::size_t gap = static_cast<std::size_t>(row * o.ld + o.cols) * width,
                        gap_bytes = static_cast<std::size_t>(o.ld - o.cols) * width;
      if (gap_bytes > 0 && std::memcmp(device[i].bytes.data() + gap, before[i].bytes.data() + gap, gap_bytes) != 0)
        gaps_untouched = false;
    }
    CHECK(gaps_untouched);
    const double rounding = o.dtype == Dtype::bf16 ? 1.0 / 128 : tolerance;
    INFO("largest " << largest << ", worst difference " << worst);
    CHECK(worst <= rounding * std::max(largest, 1e-3));
  }
}

// The operands for kernels: the buffers themselves, or copies on a GPU that take() brings back.
class OnDevice {
 public:
  // `before`: elements between the begin of memory and each operand, which then is not aligned to packs.
  explicit OnDevice(std::vector<Buffer>& buffers, std::int64_t before = 0)
      : buffers_(buffers), operands_(bound(buffers)) {
    scratch_ = allocate(kScratch_bytes);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(before * bytes_of(buffers[i].operand.dtype));
      memory_.push_back(allocate(buffers[i].bytes.size() + bytes));
      operands_[i].data = static_cast<std::byte*>(memory_.back()) + bytes;
    }
    give();
  }
  ~OnDevice() {
    release(scratch_);
    for (void* const memory : memory_) release(memory);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // Runs with little scratch and few SMs, so that sums have several parts.
  void run(const Work& work, std::size_t scratch_bytes = 1 << 16, int sms = 3) {
    launch_work(work, operands_, {nullptr, scratch_, scratch_bytes, sms});
    take();
  }
  void run_by_cublas(GemmRunner& runner, const Gemm& work) {
    const Stream stream{nullptr, scratch_, kScratch_bytes, 3};
    runner.tune(work, operands_, stream);
    give();  // tuning has written to the operands
    runner.run(work, operands_, stream);
    take();
  }
#if defined(STRETTO_ON_GPU)
  // Returns whether the installed cuDNN may be used for it.
  static bool runs_by_cudnn(const Attention& work) { return fault_of_cudnn(cudnn().GetVersion(), work).empty(); }
  // `timed`: takes the fastest engine, otherwise the first.
  void run_by_cudnn(const Attention& work, bool timed = false) {
    AttentionRunner runner;
    const Stream stream;
    const bool has_plan = runner.prepare(work, operands_, timed ? &stream : nullptr);
    INFO(runner.why_not());
    REQUIRE(has_plan);
    const auto bytes = static_cast<std::size_t>(runner.workspace_bytes(work, operands_));
    void* const workspace = allocate(bytes);
    REQUIRE(cudaMemset(workspace, 0xff, bytes) == cudaSuccess);  // NaN, so that code that assumes zeros fails
    runner.run(work, operands_, static_cast<std::byte*>(workspace), {});
    take();
    release(workspace);
  }
  void run_by_cublas(GemmRunner& gemms, GroupedGemmRunner& equal, const GroupedGemm& work) {
    const Stream stream{nullptr, scratch_, kScratch_bytes, 3};
    const void* const offsets = work.equal ? nullptr : buffers_[2].bytes.data();
    if (runs_at_once(work))
      equal.run(work, operands_, stream);
    else
      run_product_groups(gemms, work, operands_, static_cast<const std::int32_t*>(offsets), stream);
    take();
  }
#endif

 private:
  void give() {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      copy(operands_[i].data, buffers_[i].bytes.data(), buffers_[i].bytes.size(), true);
  }
  void take() {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      copy(buffers_[i].bytes.data(), operands_[i].data, buffers_[i].bytes.size(), false);
  }
#if defined(STRETTO_ON_GPU)
  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    REQUIRE(cudaMalloc(&data, bytes) == cudaSuccess);
    return data;
  }
  static void release(void* data) { cudaFree(data); }
  static void copy(void* to, const void* from, std::size_t bytes, bool up) {
    REQUIRE(cudaMemcpy(to, from, bytes, up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost) == cudaSuccess);
  }
#else
  static void* allocate(std::size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
  static void release(void* data) { std::free(data); }
  static void copy(void* to, const void* from, std::size_t bytes, bool) { std::memcpy(to, from, bytes); }
#endif

  std::vector<Buffer>& buffers_;
  std::vector<exec::Operand> operands_;
  std::vector<void*> memory_;  // [operand]
  void* scratch_ = nullptr;
};

}  // namespace stretto::cuda
