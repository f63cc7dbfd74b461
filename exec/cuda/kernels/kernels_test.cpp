// Every kernel of the device, on a GPU in gpu_tests (STRETTO_ON_GPU) and everywhere else with its threads emulated,
// against the host's kernel of the same name on the same random data. Operands come from the specification
// (model/schedule/operands.hpp), so that a new kind of work needs a few lines here.
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
#include <tuple>
#include <utility>
#include <vector>

#include "base/bf16.hpp"
#include "base/rng.hpp"
#include "base/values_of.hpp"
#include "exec/cuda/kernels/attention_seed.hpp"
#include "exec/cuda/kernels/launch_work.hpp"
#include "exec/cuda/kernels/share.hpp"
#if defined(STRETTO_ON_GPU)
#include "exec/cuda/module/attention.hpp"
#else
#include "tests/emulated_device/emulated_device.hpp"
#endif
#include "exec/host/kernels/kernels.hpp"
#include "model/schedule/operands.hpp"

namespace stretto::cuda {
namespace {

// What mixed precision keeps in f32.
bool is_kept_wide(const Work& work, const std::string& name) {
  static const std::set<std::string> kNames = {"stats", "lse",  "lses", "dgamma", "dbeta", "dwte",
                                               "dwpe",  "grad", "m",    "v",      "master"};
  const bool is_squared = std::holds_alternative<SumSquares>(work) && name == "x",
             is_bias_gradient = std::holds_alternative<Elementwise>(work) && name == "db";
  return kNames.contains(name) || is_squared || is_bias_gradient;
}

// Elements between rows. A sanitizer's build takes one that forbids packs and one that allows them: without a gap the
// end of a row hides in the next.
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
      case Dtype::e4m3:  // its bits, which have to be the same
        return std::to_integer<int>(*p);
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
        *p = static_cast<std::byte>(static_cast<int>(value));
        return;
    }
  }
};

// What a random number in [-1, 1) becomes where not every number will do.
double shaped(const std::string& name, std::int64_t col, double value, const Work& work) {
  if (name == "v") return value * value;
  if (name == "norm_squared") return 30;
  if (name == "hyper") {
    constexpr double hyper[8] = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.271, 0.1426};
    return hyper[col];
  }
  if (name == "packed") {
    // Any byte, but scales near 1.
    const ScaledCast& cast = std::get<ScaledCast>(work);
    const double byte = std::floor((value + 1) * 127);
    return col % cast.packed() >= cast.elements ? std::floor(127 + value * 9) : byte == 127 ? 126 : byte;
  }
  if (name == "x" && std::holds_alternative<ScaledCast>(work)) {
    // Blocks of many sizes, one of zeros, numbers that are far below the largest of their block.
    const std::int64_t block = col / kScaleBlock;
    return block % 7 == 3 ? 0 : value * std::exp2(double(block % 60) - 30) * (col % 5 == 0 ? 1e-3 : 1);
  }
  if (name == "key") return std::floor(value * 1e6);
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

std::vector<Buffer> buffers_of(const Work& work, Dtype dtype, std::int64_t gap, const std::vector<bool>& accumulates) {
  const OperandList list = operands_of(work, 1);
  REQUIRE(list.error.empty());
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < list.operands.size(); ++i) {
    const OperandSpec& spec = list.operands[i];
    Buffer buffer;
    buffer.name = spec.name;
    const bool is_wide = is_kept_wide(work, spec.name);
    buffer.operand.dtype = spec.type == OperandType::i32    ? Dtype::i32
                           : spec.type == OperandType::f64  ? Dtype::f64
                           : spec.type == OperandType::e4m3 ? Dtype::e4m3
                           : is_wide                        ? Dtype::f32
                                                            : dtype;
    const bool is_column = buffer.name == "tokens" || buffer.name == "targets";
    buffer.operand.rows = is_column ? spec.cols : spec.rows;
    buffer.operand.cols = is_column ? 1 : spec.cols;
    if (const auto* loss = std::get_if<CrossEntropy>(&work); loss != nullptr && buffer.name == "stats") {
      buffer.operand.rows = loss->shards;
      buffer.operand.cols = 3 * loss->rows;
    }
    const bool may_have_gaps = spec.shape == OperandShape::matrix || spec.shape == OperandShape::table;
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
          buffer.set(row, col, shaped(buffer.name, col, value, work));
        }
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

std::vector<exec::Operand> bound(std::vector<Buffer>& buffers) {
  std::vector<exec::Operand> operands;
  for (Buffer& buffer : buffers) {
    buffer.operand.data = buffer.bytes.data();
    operands.push_back(buffer.operand);
  }
  return operands;
}

// The same bits where nothing may be written; results within `tolerance` of the largest of them.
void check_same(const std::vector<Buffer>& device, const std::vector<Buffer>& host, const std::vector<Buffer>& before,
                double tolerance) {
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
        largest = std::max(largest, std::abs(b));
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

// Where kernels find their operands: the buffers themselves, or copies on a GPU that take() brings back.
class OnDevice {
 public:
  explicit OnDevice(std::vector<Buffer>& buffers) : buffers_(buffers), operands_(bound(buffers)) {
    scratch_ = allocate(kScratch_bytes);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      operands_[i].data = allocate(buffers[i].bytes.size());
      copy(operands_[i].data, buffers[i].bytes.data(), buffers[i].bytes.size(), true);
    }
  }
  ~OnDevice() {
    release(scratch_);
    for (const exec::Operand& operand : operands_) release(operand.data);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // Little scratch and few SMs, so that sums are of several parts.
  void run(const Work& work, std::size_t scratch_bytes = 1 << 16, int sms = 3) {
    launch_work(work, operands_, {nullptr, scratch_, scratch_bytes, sms});
    take();
  }
#if defined(STRETTO_ON_GPU)
  void run_by_cudnn(const Attention& work) {
    AttentionRunner runner;
    const bool has_plan = runner.prepare(work, operands_);
    INFO(runner.why_not());
    REQUIRE(has_plan);
    const auto bytes = static_cast<std::size_t>(runner.workspace_bytes(work, operands_));
    void* const workspace = allocate(bytes);
    REQUIRE(cudaMemset(workspace, 0xff, bytes) == cudaSuccess);  // NaN where somebody thinks that it is clear
    runner.run(work, operands_, static_cast<std::byte*>(workspace), {});
    take();
    release(workspace);
  }
#endif

 private:
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
  void* scratch_ = nullptr;
};

void check(const Work& work, double tolerance = 2e-6) {
#if defined(STRETTO_ON_GPU)
  tolerance *= 8;  // its exponentials are approximate
#endif
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t gap : kGaps)
      for (const bool accumulates : {false, true}) {
        INFO(describe(work) << ", " << name_of(dtype) << ", gap " << gap << ", accumulates " << accumulates);
        const std::vector<Buffer> before = buffers_of(work, dtype, gap, {accumulates});
        std::vector<Buffer> device = before, host = before;
        host::run_work(work, bound(host));
        OnDevice(device).run(work);
        check_same(device, host, before, tolerance);
      }
}

// Comparisons of each kind of work.
void compare(const Elementwise&) {
  for (const ElementwiseFn fn : values_of<ElementwiseFn>())
    for (const auto& [rows, cols] : {std::pair{5, 7}, std::pair{1, 1}, std::pair{13, 64}, std::pair{150, 272}})
      check(Elementwise{fn, rows, cols}, 5e-6);
}

template <class Norm>
void compare_norm() {
  for (const Pass pass : values_of<Pass>())
    for (const auto& [rows, cols] : {std::pair{5, 7}, std::pair{1, 1}, std::pair{13, 64}, std::pair{150, 520}})
      check(Norm{pass, rows, cols}, 2e-5);
  // Two packs a thread in f32; two in bf16, and both gradients one after the other in f32.
  for (const std::int64_t cols : {2056, 4104}) check(Norm{Pass::backward, 5, cols}, 2e-5);
}
void compare(const LayerNorm&) { compare_norm<LayerNorm>(); }
void compare(const RmsNorm&) { compare_norm<RmsNorm>(); }

void compare(const AttentionProduct&) {
  for (const AttentionFactor product : values_of<AttentionFactor>()) {
    check(AttentionProduct{product, 2, 4, 2, 9, 6}, 1e-5);
    check(AttentionProduct{product, 1, 3, 3, 70, 5}, 1e-5);
    check(AttentionProduct{product, 1, 2, 1, 17, 66}, 1e-5);
    check(AttentionProduct{product, 1, 1, 1, 1, 1}, 1e-5);
  }
}

void compare(const Softmax&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad}) {
    for (const bool causal : {false, true})
      for (const auto& [rows, cols] : {std::pair{14, 7}, std::pair{1, 1}, std::pair{300, 300}})
        check(Softmax{pass, rows, cols, causal}, 1e-5);
    check(Softmax{pass, 5, 8, false}, 1e-5);
  }
}

void compare(const Rope&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const std::int64_t head_dim : {2, 6, 64}) {
      check(Rope{pass, 14, 3, 1, 7, head_dim, 10000}, 1e-5);
      check(Rope{pass, 14, 3, 1, 7, head_dim, 10000, {}, {1, 8, 1, 4, 32}}, 1e-5);
      check(Rope{pass, 14, 3, 1, 7, head_dim, 10000, {}, {2.5}}, 1e-5);
      check(Rope{pass, 12, 3, 1, 18, head_dim, 10000, {3, 1, 1}}, 1e-5);
    }
}

void compare(const Dropout&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const bool bias : {false, true})
      for (const bool residual : {false, true})
        for (const std::int64_t cols : {1, 7, 64})
          for (const SequenceParts& parts : {SequenceParts{}, SequenceParts{3, 2, 1}})
            check(Dropout{pass, 12, cols, 18, 0.3, DropoutSite::residual_1, bias, residual, 12, 0, false, parts});
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const std::int64_t cols : {1, 7, 64})
      check(Dropout{pass, 12, cols, 6, 0.3, DropoutSite::attention, false, false, 0, 18, true});
}

void compare(const Embedding&) {
  for (const Pass pass : {Pass::forward, Pass::wgrad})
    for (const bool positions : {false, true})
      for (const auto& [vocab, cols, shards] :
           {std::tuple{31, 6, 1}, std::tuple{30, 8, 2}, std::tuple{2, 64, 1}, std::tuple{62, 12, 2}})
        for (std::int64_t shard = 0; shard < shards; ++shard)
          check(Embedding{pass, 350, cols, vocab, 50, positions, shards, shard}, 1e-5);
  for (const Pass pass : {Pass::forward, Pass::wgrad})
    check(Embedding{pass, 24, 6, 31, 36, true, 1, 0, {3, 1, 1}}, 1e-5);
  // More occurrences than a block collects at once, and more sequences than are read ahead.
  check(Embedding{Pass::wgrad, 7000, 4, 3, 3500, true, 1}, 1e-5);
  check(Embedding{Pass::wgrad, 360, 8, 30, 20, true, 1}, 1e-5);
}

template <class Check>
void for_vocabularies(Check check_of) {
  for (const auto& [rows, cols, classes] :
       {std::tuple{3, 7, 7}, std::tuple{5, 640, 601}, std::tuple{2, 1, 1}, std::tuple{2, 20'000, 19'995}}) {
    check_of(rows, cols, classes, 1, 0);
    for (std::int64_t shard = 0; shard < 2; ++shard) check_of(rows, cols, cols + (classes + 1) / 2, 2, shard * cols);
  }
}
void compare(const CrossEntropy&) {
  for_vocabularies([](auto rows, auto cols, auto classes, auto shards, auto first_class) {
    check(CrossEntropy{rows, cols, classes, 0.25, shards, first_class}, 1e-5);
  });
}
void compare(const VocabStats&) {
  for_vocabularies([](auto rows, auto cols, auto classes, auto, auto first_class) {
    check(VocabStats{rows, cols, classes, first_class}, 1e-5);
  });
}

constexpr std::int64_t kElements[] = {1, 7, 64, 5000};
void compare(const Fill&) {
  for (const std::int64_t elements : kElements) check(Fill{elements, 0.75});
}
void compare(const Cast&) {
  for (const std::int64_t elements : kElements) check(Cast{elements});
}
void compare(const ScaledCast&) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const std::int64_t blocks : {1, 3, 100})
      for (const std::int64_t shards : {1, 3}) check(ScaledCast{pass, shards, blocks * kScaleBlock}, 0);
}
void compare(const SumSquares&) {
  for (const std::int64_t elements : kElements) check(SumSquares{elements, 3});
}
void compare(const LocalReduce&) {
  for (const std::int64_t elements : kElements)
    for (const std::int64_t parts : {1, 3}) {
      const LocalReduce work{parts, elements};
      check(work);
      // Parts in bf16 whose sum is in f32.
      std::vector<Buffer> before = buffers_of(work, Dtype::bf16, 0, {false});
      before[1].operand.dtype = Dtype::f32;
      before[1].bytes.resize(static_cast<std::size_t>(elements) * sizeof(float));
      std::vector<Buffer> device = before, host = before;
      host::run_work(work, bound(host));
      OnDevice(device).run(work);
      check_same(device, host, before, 0);
    }
}

void compare(const AdamW&) {
  for (const bool master : {false, true})
    for (const std::int64_t elements : {1, 10, 1003, 4096})
      for (std::int64_t shard = 0; shard < 2; ++shard)
        check(AdamW{elements, {{0, elements / 3}, {elements / 2, elements + elements / 3}}, 2, master, shard}, 5e-6);
  // More ranges than one launch takes, and some that meet.
  AdamW many{20000, {}, 1, true};
  for (std::int64_t i = 0; i < 2300; ++i) many.decayed.push_back({i * 8 + 1, i * 8 + (i % 3 == 0 ? 9 : 6)});
  check(many, 5e-6);
}

void compare(const Attention&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const double dropout : {0.0, 0.25}) {
      check(Attention{pass, 2, 4, 2, 9, 6, true, dropout, 4}, 1e-5);
      check(Attention{pass, 1, 3, 3, 13, 40, false, dropout}, 1e-5);
      check(Attention{pass, 1, 1, 1, 1, 1, true, dropout}, 1e-5);
    }
  check(Attention{Pass::forward, 1, 1, 1, 3, 256, true, 0}, 1e-5);
  // Parts of a sequence: one of queries with one of keys that is before, the same and behind, with all, and all of
  // them.
  const auto check_parts = [](std::int64_t first_key, std::int64_t queries, std::int64_t keys, bool kv_apart) {
    for (const Pass pass : {Pass::forward, Pass::dgrad})
      for (const double dropout : {0.0, 0.25})
        check(Attention{pass,
                        2,
                        4,
                        2,
                        18,
                        6,
                        true,
                        dropout,
                        4,
                        {3, queries == 1 ? 1 : 0, queries},
                        {3, first_key, keys},
                        kv_apart},
              1e-5);
  };
  for (const std::int64_t first_key : {0, 1, 2}) check_parts(first_key, 1, 1, true);
  check_parts(0, 1, 3, true);
  check_parts(1, 2, 2, true);
  check_parts(0, 3, 3, false);
}
void compare(const AttentionMerge&) {
  check(AttentionMerge{3, 2, 2, 6, 5, 1}, 1e-5);
  check(AttentionMerge{2, 3, 1, 6, 40, 3}, 1e-5);
  check(AttentionMerge{1, 1, 1, 1, 1, 1}, 1e-5);
}
void compare(const PackKv&) {
  check(PackKv{5, 4, 2, 3});
  check(PackKv{70, 1, 1, 40});
}
void compare(const JoinQkv&) {
  for (const std::int64_t sums : {1, 2}) {
    check(JoinQkv{1, sums, 5, 4, 2, 3});
    check(JoinQkv{3, sums, 70, 1, 1, 40});
  }
}
void compare(const SplitHeads&) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    check(SplitHeads{pass, 2, 5, 4, 2, 3});
    check(SplitHeads{pass, 3, 5, 3, 0, 8});
    check(SplitHeads{pass, 1, 2, 1, 1, 1});
  }
}

void compare(const Gemm&) {}          // cuBLAS's: the executor's tests
void compare(const Collective&) {}    // below
void compare(const PointToPoint&) {}  // below

template <class... Kinds>
void compare_all(const std::variant<Kinds...>*) {
  const auto compare_one = [](const auto& kind) {
    DYNAMIC_SECTION(kind_of(kind)) { compare(kind); }
  };
  (compare_one(Kinds{}), ...);
}

}  // namespace

// A kind that nothing compares does not compile.
TEST_CASE("device kernels agree with the host's", "[cuda]") { compare_all(static_cast<const Work*>(nullptr)); }

#if defined(STRETTO_ON_GPU)
TEST_CASE("cuDNN's attention agrees with the host's", "[cuda]") {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const std::int64_t kv_heads : {8, 4, 2, 1})
      for (const auto& [seq, head_dim, is_causal] :
           {std::tuple{64, 16, true}, std::tuple{200, 64, true}, std::tuple{256, 128, true}, std::tuple{256, 256, true},
            std::tuple{200, 64, false}}) {
        const Attention work{pass, 2, 8, kv_heads, seq, head_dim, is_causal, 0};
        INFO(describe(Work(work)));
        const std::vector<Buffer> before = buffers_of(work, Dtype::bf16, 0, {false});
        std::vector<Buffer> device = before, host = before;
        host::run_work(work, bound(host));
        OnDevice(device).run_by_cudnn(work);
        check_same(device, host, before, 1e-3);
      }
}

// With the identity for v, the output of a head is what dropout leaves of its probabilities: masks can be read, and the
// gradient computed by hand.
TEST_CASE("cuDNN's dropout keeps what it should, and its gradient has the masks of its forward pass", "[cuda]") {
  constexpr std::int64_t kBatch = 2, kHeads = 2, kSize = 64;  // tokens of a sequence, and elements of a head
  constexpr double kDropout = 0.25, kScale = 0.125;           // 1 / sqrt(kSize)
  Attention work{Pass::forward, kBatch, kHeads, kHeads, kSize, kSize, true, kDropout};
  std::vector<Buffer> forward = buffers_of(work, Dtype::bf16, 0, {false});
  const auto k_col = [](std::int64_t head) { return (kHeads + head) * kSize; };
  const auto v_col = [](std::int64_t head) { return (2 * kHeads + head) * kSize; };
  for (std::int64_t row = 0; row < kBatch * kSize; ++row)
    for (std::int64_t col = 0; col < kHeads * kSize; ++col)
      forward[0].set(row, v_col(0) + col, row % kSize == col % kSize ? 1 : 0);
  std::vector<Buffer> undropped = {forward[0], forward[1], forward[2]};
  Attention plain = work;
  plain.dropout = 0;
  host::run_work(plain, bound(undropped));
  OnDevice(forward).run_by_cudnn(work);

  work.pass = Pass::dgrad;
  std::vector<Buffer> backward = buffers_of(work, Dtype::bf16, 0, {false});
  for (const std::size_t i : {0, 1, 2}) backward[i].bytes = forward[i].bytes;
  backward.back().bytes = forward.back().bytes;
  OnDevice(backward).run_by_cudnn(work);
  std::int64_t pairs = 0, dropped = 0;
  double worst = 0, largest = 0;
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t row = b * kSize, col = h * kSize;
      std::vector<double> p(kSize * kSize), kept(kSize * kSize), ds(kSize * kSize);
      for (std::int64_t q = 0; q < kSize; ++q) {
        double sum = 0;  // of dO ∘ O
        for (std::int64_t k = 0; k < kSize; ++k)
          sum += forward[1].at(row + q, col + k) * backward[3].at(row + q, col + k);
        for (std::int64_t k = 0; k <= q; ++k) {
          const std::size_t at = static_cast<std::size_t>(q * kSize + k);
          p[at] = undropped[1].at(row + q, col + k);
          const double left = forward[1].at(row + q, col + k);
          kept[at] = left == 0 ? 0 : 1 / (1 - kDropout);
          CHECK(left == Approx(p[at] * kept[at]).epsilon(0.03));
          ++pairs;
          dropped += left == 0;
          ds[at] = p[at] * (kept[at] * backward[3].at(row + q, col + k) - sum) * kScale;
        }
      }
      const auto compare = [&](std::int64_t at_row, std::int64_t at_col, double expected) {
        worst = std::max(worst, std::abs(backward[4].at(at_row, at_col) - expected));
        largest = std::max(largest, std::abs(expected));
      };
      for (std::int64_t i = 0; i < kSize; ++i)
        for (std::int64_t j = 0; j < kSize; ++j) {
          double dq = 0, dk = 0, dv = 0;
          for (std::int64_t n = 0; n < kSize; ++n) {
            const std::size_t of_query = static_cast<std::size_t>(i * kSize + n),
                              of_key = static_cast<std::size_t>(n * kSize + i);
            dq += ds[of_query] * forward[0].at(row + n, k_col(h) + j);
            dk += ds[of_key] * forward[0].at(row + n, col + j);
            dv += p[of_key] * kept[of_key] * backward[3].at(row + n, col + j);
          }
          compare(row + i, col + j, dq);
          compare(row + i, k_col(h) + j, dk);
          compare(row + i, v_col(h) + j, dv);
        }
    }
  CHECK(worst < largest / 50);
  // Five standard deviations of a binomial distribution.
  const double expected = kDropout * static_cast<double>(pairs);
  CHECK(static_cast<double>(dropped) == Approx(expected).margin(5 * std::sqrt(expected * (1 - kDropout))));
}
#endif

#if !defined(STRETTO_ON_GPU)  // there the executor tests them
TEST_CASE("shares of collectives on the device are those of the host", "[cuda]") {
  const Pace pace{3, 0};
  for (const CollectiveKind kind : values_of<CollectiveKind>()) {
    const CollectiveRule rule = rule_of(kind);
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::e4m3}) {
      if (dtype == Dtype::e4m3 && rule.sums()) continue;  // bytes are moved
      for (const int members : {2, 3})
        for (const std::int64_t each :
             {1, 7, 64, 1000, 6151, 20000}) {  // the last two: more than all threads take at once
          // All-reduces of a number of elements that members do not divide.
          const std::int64_t elements = members * each + (rule.one_buffer ? 1 : 0);
          const auto width = bytes_of(dtype);
          const std::int64_t in = rule.gives_shard ? each : elements, out = rule.gets_shard ? each : elements;
          std::vector<std::vector<std::byte>> ins, outs;
          for (int m = 0; m < members; ++m) {
            Buffer buffer;
            buffer.operand = {nullptr, dtype, 1, in, in, AccessMode::read};
            buffer.bytes.resize(static_cast<std::size_t>(in * width));
            for (std::int64_t i = 0; i < in; ++i)
              buffer.set(0, i,
                         (dtype == Dtype::e4m3 ? 250 : 2) *
                                 uniform(3, static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(i)) -
                             (dtype == Dtype::e4m3 ? 0 : 1));
            ins.push_back(buffer.bytes);
            outs.emplace_back(static_cast<std::size_t>(out * width), std::byte{0xff});
          }
          INFO(name_of(kind) << " " << name_of(dtype) << ", " << members << " members, " << elements << " elements");
          const auto run = [&](bool on_device) {
            std::vector<std::vector<std::byte>> from = ins, to = outs;
            std::vector<local::Buffers> buffers;
            for (int m = 0; m < members; ++m) {
              auto& own = rule.one_buffer ? from[m] : to[m];
              buffers.push_back({from[m].data(), own.data()});
            }
            for (int phase = 0; phase < rule.phases; ++phase)
              for (int m = members - 1; m >= 0; --m)
                on_device ? run_share(kind, dtype, elements, m, buffers, phase, pace, Stream{})
                          : local::run_share(kind, dtype, elements, m, buffers, phase);
            return rule.one_buffer ? from : to;
          };
          CHECK(run(true) == run(false));
        }
    }
  }
  std::vector<std::byte> from(1001, std::byte{7}), to(1001, std::byte{1});
  run_message(from.data(), to.data(), 1000, pace, Stream{});
  CHECK(std::count(to.begin(), to.end(), std::byte{7}) == 1000);
}

TEST_CASE("kernels that go round their work launch as many blocks as the device holds, and no more", "[cuda]") {
  // As if each thread took 128 of the SM's registers.
  const auto threads_of_sm = std::exchange(emulate::threads_of_sm, 512);
  std::vector<emulate::Launch> launches;
  const auto blocks_of_first = [&](auto start) {
    launches.clear();
    emulate::launches = &launches;
    start();
    emulate::launches = nullptr;
    return std::int64_t{launches.front().grid.x} * launches.front().grid.y;
  };
  constexpr int sms = 2;
  const auto blocks_of = [&](const Work& work, Dtype dtype) {
    std::vector<Buffer> buffers = buffers_of(work, dtype, 0, {true});
    return blocks_of_first([&] { OnDevice(buffers).run(work, kScratch_bytes, sms); });
  };
  // A block has 96 threads at 768 columns of bf16 and 320 at 5,120, a pack of eight columns or two each.
  CHECK(blocks_of(LayerNorm{Pass::backward, 100, 768}, Dtype::bf16) == sms * (512 / 96));
  CHECK(blocks_of(RmsNorm{Pass::backward, 20, 5120}, Dtype::bf16) == sms * (512 / 320));
  // Two tiles of columns share four blocks.
  CHECK(blocks_of(LayerNorm{Pass::wgrad, 300, 256}, Dtype::bf16) == 4);
  CHECK(blocks_of(Elementwise{ElementwiseFn::column_sum, 500, 128}, Dtype::bf16) == 4);
  CHECK(blocks_of(SumSquares{5000}, Dtype::f32) == 4);
  CHECK(blocks_of(AdamW{8000, {}}, Dtype::f32) == 4);
  CHECK(blocks_of(ScaledCast{Pass::forward, 1, 3200}, Dtype::f32) == 4);
  CHECK(blocks_of(ScaledCast{Pass::backward, 1, 3200}, Dtype::f32) == 4);
  std::vector<std::byte> from(64), to(64);
  for (const int ctas : {1, 2, 16})
    CHECK(blocks_of_first([&] {
            run_message(from.data(), to.data(), 64, {ctas, 0}, {.sms = sms});
          }) == std::min(ctas, 2));
  emulate::threads_of_sm = threads_of_sm;
}
#endif

#if !defined(STRETTO_ON_GPU)
TEST_CASE("seeds of attention's dropout differ wherever masks should", "[cuda]") {
  std::set<std::pair<std::int64_t, std::int64_t>> all;
  std::set<std::int64_t> seeds, offsets;
  const auto seed_of = [](std::int32_t low, std::int32_t high, std::int32_t sample, std::int64_t first_head) {
    std::int32_t key[kDropoutKeyWords] = {low, high, sample};
    std::int64_t out[2] = {};
    write_attention_seed({key, Dtype::i32, 1, kDropoutKeyWords, kDropoutKeyWords}, first_head, out, {});
    return std::pair{out[0], out[1]};
  };
  for (const std::int32_t low : {0, 1, -1})
    for (const std::int32_t high : {0, 1, -1})
      for (const std::int64_t first_head : {0, 1, 12})
        for (const std::int32_t sample : {0, 1, 1 << 30}) {
          const auto seed = seed_of(low, high, sample, first_head);
          all.insert(seed);
          seeds.insert(seed.first);
          offsets.insert(seed.second);
          CHECK(seed == seed_of(low, high, sample, first_head));
        }
  CHECK(all.size() == 81);
  CHECK(seeds.size() == 27);
  CHECK(offsets == std::set<std::int64_t>{0, 16, std::int64_t{16} << 30});
}
#endif

TEST_CASE("a token or target outside the vocabulary makes NaN on the device", "[cuda]") {
  const CrossEntropy work{3, 8, 8, 1, 1};
  std::vector<Buffer> buffers = buffers_of(work, Dtype::f32, 0, {false});
  buffers[1].set(2, 0, 8);
  OnDevice(buffers).run(work);
  CHECK(std::isnan(buffers[2].at(0, 0)));
  const Embedding embedding{Pass::forward, 4, 8, 5, 4, false, 1};
  buffers = buffers_of(embedding, Dtype::f32, 0, {false});
  buffers[0].set(1, 0, -1);
  OnDevice(buffers).run(embedding);
  CHECK(std::isnan(buffers[2].at(1, 7)));
  CHECK_FALSE(std::isnan(buffers[2].at(0, 7)));
}

}  // namespace stretto::cuda
