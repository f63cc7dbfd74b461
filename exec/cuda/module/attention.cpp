// The graphs are those that cuDNN's documentation of fused attention describes. With S = scale · Q · Kᵀ, masked:
//   forward   O = exp(S − max) / Σ · V,  stats = max + log Σ
//   gradient  P = exp(S − stats), dV = Pᵀ · dO, dS = P ∘ (dO · Vᵀ − Σ dO ∘ O) · scale, dQ = dS · K, dK = dSᵀ · Q
// Grouped queries: a product of h heads with hk of K or V takes each of those for h / hk heads that follow one another
// (so cuDNN's own frontend describes it), and dK and dV of all heads, between two operations, are reduced to hk.
#include "exec/cuda/module/attention.hpp"

#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/module/cudnn_api.hpp"

namespace stretto::cuda {
namespace {

struct CudnnError {
  std::string what;
};
void check(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char last[512] = {};
  cudnn().GetLastErrorString(last, sizeof last);
  throw CudnnError{std::string(cudnn().GetErrorString(status)) + (last[0] != 0 ? std::string(", ") + last : "")};
}

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) { check(cudnn().BackendCreateDescriptor(type, &handle_)); }
  ~Descriptor() { cudnn().BackendDestroyDescriptor(handle_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    check(cudnn().BackendSetAttribute(handle_, name, type, 1, &value));
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values, std::int64_t count) {
    check(cudnn().BackendSetAttribute(handle_, name, type, count, values));
  }
  void finalize() { check(cudnn().BackendFinalize(handle_)); }
  cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// A graph's operands, by cuDNN's "unique ids".
enum Id : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kScale,
  kMasked,
  kDO,
  kDQ,
  kDK,
  kDV,
  kSum,
  kDQSum,
  kOne,
  kVirtual
};

using Dims = std::array<std::int64_t, 4>;
using Tensor = cudnnBackendDescriptor_t;

class Graph {
 public:
  Tensor tensor(std::int64_t id, Dims dims, Dims strides, cudnnDataType_t type, bool is_virtual = false,
                bool by_value = false) {
    Descriptor& t = keep(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const std::int64_t alignment = 16;
    t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), 4);
    t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
    t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
    t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    t.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    t.finalize();
    return t.get();
  }
  // A contiguous one that never exists in memory.
  Tensor between(Dims dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor(next_virtual_++, dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}, type, true);
  }
  Tensor scalar(std::int64_t id) { return tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true); }

  void matmul(Tensor a, Tensor b, Tensor c) {
    Descriptor& how = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    Descriptor& op = keep(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, a);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, b);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, c);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.get());
    finish(op);
  }
  // y = mode(x, b, t); b and t where the mode has them. `axis` is for GEN_INDEX.
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b = nullptr, Tensor t = nullptr,
                 std::int64_t axis = -1) {
    Descriptor& how = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    // As cudnn-frontend has them: engines know a causal mask by its form.
    const cudnnDataType_t computed_in = mode == CUDNN_POINTWISE_GEN_INDEX ? CUDNN_DATA_INT32
                                        : mode == CUDNN_POINTWISE_CMP_GE  ? CUDNN_DATA_BOOLEAN
                                                                          : CUDNN_DATA_FLOAT;
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computed_in);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    how.finalize();
    Descriptor& op = keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.get());
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
    if (b != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, b);
    if (t != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, t);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
    finish(op);
  }
  void reduce(cudnnReduceTensorOp_t with, Tensor x, Tensor y) {
    Descriptor& how = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, with);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    Descriptor& op = keep(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.get());
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
    finish(op);
  }
  // The same elements as y's dims and strides name them.
  void reshape(Tensor x, Tensor y) {
    Descriptor& op = keep(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
    finish(op);
  }
  std::span<const cudnnBackendDescriptor_t> operations() const { return operations_; }

 private:
  Descriptor& keep(cudnnBackendDescriptorType_t type) {
    kept_.push_back(std::make_unique<Descriptor>(type));
    return *kept_.back();
  }
  void finish(Descriptor& op) {
    op.finalize();
    operations_.push_back(op.get());
  }

  std::vector<std::unique_ptr<Descriptor>> kept_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::int64_t next_virtual_ = kVirtual;
};

// Shapes and places of one attention.
struct Shape {
  std::int64_t b, h, hk, s, d, qkv_ld, out_ld;
  bool is_causal;
  Dims rows() const { return {b, h, s, d}; }
  Dims kv_rows() const { return {b, hk, s, d}; }
  Dims kv_columns() const { return {b, hk, d, s}; }  // of a transposed view
  Dims scores() const { return {b, h, s, s}; }
  Dims of_rows() const { return {b, h, s, 1}; }
  Dims stats_strides() const { return {h * s, s, 1, 1}; }
  // A head's part of rows `ld` apart, as it is and transposed.
  Dims strides(std::int64_t ld) const { return {s * ld, d, ld, 1}; }
  Dims transposed(std::int64_t ld) const { return {s * ld, d, 1, ld}; }
};

// masked = row ≥ column ? x : −∞; x itself where every query sees every key.
Tensor masked(Graph& g, const Shape& s, Tensor x) {
  if (!s.is_causal) return x;
  Tensor row = g.between(s.scores(), CUDNN_DATA_INT32), column = g.between(s.scores(), CUDNN_DATA_INT32),
         sees = g.between(s.scores(), CUDNN_DATA_BOOLEAN), y = g.between(s.scores());
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, x, row, nullptr, nullptr, 2);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, x, column, nullptr, nullptr, 3);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, row, sees, column);
  g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, y, g.scalar(kMasked), sees);
  return y;
}

void forward_graph(Graph& g, const Shape& s) {
  constexpr auto bf16 = CUDNN_DATA_BFLOAT16;
  Tensor q = g.tensor(kQ, s.rows(), s.strides(s.qkv_ld), bf16),
         k = g.tensor(kK, s.kv_columns(), s.transposed(s.qkv_ld), bf16),
         v = g.tensor(kV, s.kv_rows(), s.strides(s.qkv_ld), bf16),
         o = g.tensor(kO, s.rows(), s.strides(s.out_ld), bf16),
         stats = g.tensor(kStats, s.of_rows(), s.stats_strides(), CUDNN_DATA_FLOAT);
  Tensor product = g.between(s.scores()), scaled = g.between(s.scores());
  g.matmul(q, k, product);
  g.pointwise(CUDNN_POINTWISE_MUL, product, scaled, g.scalar(kScale));
  Tensor score = masked(g, s, scaled);
  Tensor top = g.between(s.of_rows()), shifted = g.between(s.scores()), e = g.between(s.scores()),
         sum = g.between(s.of_rows()), log = g.between(s.of_rows()), p = g.between(s.scores(), bf16);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, score, top);
  g.pointwise(CUDNN_POINTWISE_SUB, score, shifted, top);
  g.pointwise(CUDNN_POINTWISE_EXP, shifted, e);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  g.pointwise(CUDNN_POINTWISE_LOG, sum, log);
  g.pointwise(CUDNN_POINTWISE_ADD, top, stats, log);
  g.pointwise(CUDNN_POINTWISE_DIV, e, p, sum);
  g.matmul(p, v, o);
}

void gradient_graph(Graph& g, const Shape& s) {
  constexpr auto bf16 = CUDNN_DATA_BFLOAT16;
  const auto rows = [&](Id id, std::int64_t ld) { return g.tensor(id, s.rows(), s.strides(ld), bf16); };
  const auto kv = [&](Id id) { return g.tensor(id, s.kv_rows(), s.strides(s.qkv_ld), bf16); };
  const auto transposed_kv = [&](Id id) { return g.tensor(id, s.kv_columns(), s.transposed(s.qkv_ld), bf16); };
  // a · b for every head, added up over the heads that share one of K and V.
  const auto matmul_of_group = [&](Tensor a, Tensor b, Tensor c) {
    if (s.h == s.hk) return g.matmul(a, b, c);
    Tensor of_heads = g.between(s.rows(), bf16);
    g.matmul(a, b, of_heads);
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, c);
  };
  Tensor q = rows(kQ, s.qkv_ld), k = transposed_kv(kK), v = transposed_kv(kV), o = rows(kO, s.out_ld),
         d_o = rows(kDO, s.out_ld), dq = rows(kDQ, s.qkv_ld), dk = kv(kDK), dv = kv(kDV);
  Tensor stats = g.tensor(kStats, s.of_rows(), s.stats_strides(), CUDNN_DATA_FLOAT),
         mean = g.tensor(kSum, s.of_rows(), s.stats_strides(), CUDNN_DATA_FLOAT),
         dq_sum = g.tensor(kDQSum, s.rows(), {s.h * s.s * s.d, s.s * s.d, s.d, 1}, CUDNN_DATA_FLOAT);
  Tensor oo = g.between(s.rows()), row_sum = g.between(s.of_rows());
  g.pointwise(CUDNN_POINTWISE_MUL, d_o, oo, o);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, oo, row_sum);
  g.pointwise(CUDNN_POINTWISE_MUL, row_sum, mean, g.scalar(kOne));

  Tensor product = g.between(s.scores()), scaled = g.between(s.scores()), shifted = g.between(s.scores()),
         p = g.between(s.scores(), bf16);
  g.matmul(q, k, product);
  g.pointwise(CUDNN_POINTWISE_MUL, product, scaled, g.scalar(kScale));
  // The mask after the shift or before it is the same: exp(−∞) is 0.
  g.pointwise(CUDNN_POINTWISE_SUB, scaled, shifted, stats);
  g.pointwise(CUDNN_POINTWISE_EXP, masked(g, s, shifted), p);
  const Dims turned = {s.h * s.s * s.s, s.s * s.s, 1, s.s};
  Tensor pt = g.tensor(kVirtual + 1000, s.scores(), turned, bf16, true);
  g.reshape(p, pt);
  matmul_of_group(pt, d_o, dv);

  Tensor dp = g.between(s.scores()), centred = g.between(s.scores()), weighted = g.between(s.scores()),
         ds = g.between(s.scores(), bf16);
  g.matmul(d_o, v, dp);
  g.pointwise(CUDNN_POINTWISE_SUB, dp, centred, mean);
  g.pointwise(CUDNN_POINTWISE_MUL, centred, weighted, p);
  g.pointwise(CUDNN_POINTWISE_MUL, weighted, ds, g.scalar(kScale));
  Tensor dst = g.tensor(kVirtual + 1001, s.scores(), turned, bf16, true);
  g.reshape(ds, dst);
  matmul_of_group(dst, q, dk);
  Tensor k_rows = g.tensor(kVirtual + 1002, s.kv_rows(), s.strides(s.qkv_ld), bf16, true);
  g.reshape(k, k_rows);
  g.matmul(ds, k_rows, dq_sum);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum, dq);
}

// As cuDNN's own frontend has it (sdpa nodes): versions before these want masked scores to be the lowest number, and
// the sums of dq cleared.
constexpr std::size_t kInfinityVersion = 91000, kClearsSumsVersion = 90600;
constexpr int kConfigurations = 8;  // of engines, that cuDNN is asked for

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

struct AttentionRunner::Plan {
  Shape shape;
  bool is_forward;
  Graph graph;
  Descriptor operations{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  Descriptor heuristic{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
  std::vector<std::unique_ptr<Descriptor>> configurations;
  std::unique_ptr<Descriptor> device, plan;
  std::int64_t workspace_bytes = 0;

  Plan(const Shape& s, bool forward, cudnnHandle_t handle, const std::string& device_json)
      : shape(s), is_forward(forward) {
    forward ? forward_graph(graph, s) : gradient_graph(graph, s);
    operations.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph.operations().data(),
                   static_cast<std::int64_t>(graph.operations().size()));
    if (handle != nullptr) operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    operations.finalize();
    if (!device_json.empty()) {
      device = std::make_unique<Descriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      device->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device_json.c_str(),
                  static_cast<std::int64_t>(device_json.size()) + 1);
      device->finalize();
    }
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.get());
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    if (device) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, device->get());
    heuristic.finalize();
    std::vector<cudnnBackendDescriptor_t> found;
    for (int i = 0; i < kConfigurations; ++i) {
      configurations.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
      found.push_back(configurations.back()->get());
    }
    std::int64_t count = 0;
    check(cudnn().BackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   kConfigurations, &count, found.data()));
    if (count == 0) throw CudnnError{"no engine for this graph"};
    // The first that can be built, the best first.
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, kConfigurations); ++i) {
      plan = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (handle != nullptr) plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
      if (device) plan->set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, device->get());
      plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                found[static_cast<std::size_t>(i)]);
      try {
        plan->finalize();
        break;
      } catch (const CudnnError&) {
        if (i + 1 >= std::min<std::int64_t>(count, kConfigurations)) throw;
      }
    }
    check(cudnn().BackendGetAttribute(plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                   &workspace_bytes));
  }

  std::int64_t sums_bytes() const { return is_forward ? 0 : rounded_up(shape.b * shape.h * shape.s * 4); }
  std::int64_t dq_bytes() const { return is_forward ? 0 : rounded_up(shape.b * shape.h * shape.s * shape.d * 4); }
};

AttentionRunner::AttentionRunner() {
  try {
    if (const cudnnStatus_t status = cudnn().Create(&handle_); status != CUDNN_STATUS_SUCCESS)
      missing_ = std::string("it does not start: ") + cudnn().GetErrorString(status);
  } catch (const Error& error) {
    missing_ = error.what();
  }
}
AttentionRunner::AttentionRunner(const DescribedDevice& device) : device_json_(device.json) {}
AttentionRunner::~AttentionRunner() {
  plans_.clear();
  if (handle_ != nullptr) cudnn().Destroy(handle_);
}

AttentionRunner::Key AttentionRunner::key_of(const Attention& work, std::span<const exec::Operand> operands) {
  return {work.pass == Pass::forward,
          work.batch,
          work.heads,
          work.kv_heads,
          work.seq,
          work.head_dim,
          operands[0].ld,
          operands[1].ld,
          work.causal,
          static_cast<std::int64_t>(operands[0].dtype) * 2 + (work.dropout > 0)};
}

bool AttentionRunner::prepare(const Attention& work, std::span<const exec::Operand> operands) {
  if (!missing_.empty()) {
    why_not_ = missing_;
    return false;
  }
  if (work.kv_apart || work.queries.of > 1) {
    why_not_ = "parts of sequences have no plan";
    return false;
  }
  const auto [at, fresh] = plans_.try_emplace(key_of(work, operands));
  if (!fresh) return at->second != nullptr;
  const bool is_gradient = work.pass == Pass::dgrad;
  if (operands[0].dtype != Dtype::bf16 || work.dropout > 0 || work.head_dim % 8 != 0 || work.head_dim > 256 ||
      work.seq < 64) {
    why_not_ = "only bf16, without dropout, heads of 8 to 256, 64 tokens and more";
    return false;
  }
  if (is_gradient && (operands[3].ld != operands[1].ld || operands[4].ld != operands[0].ld)) {
    why_not_ = "gradients must lie as what they are gradients of";
    return false;
  }
  if (operands[2].ld != work.seq) {
    why_not_ = "log-sum-exps must follow one another";
    return false;
  }
  const Shape shape{work.batch, work.heads, work.kv_heads, work.seq, work.head_dim, operands[0].ld, operands[1].ld,
                    work.causal};
  try {
    at->second = std::make_unique<Plan>(shape, !is_gradient, handle_, device_json_);
  } catch (const CudnnError& error) {
    why_not_ = error.what;
  }
  return at->second != nullptr;
}

std::int64_t AttentionRunner::workspace_bytes(const Attention& work, std::span<const exec::Operand> operands) const {
  const Plan& plan = *plans_.at(key_of(work, operands));
  return plan.sums_bytes() + plan.dq_bytes() + rounded_up(plan.workspace_bytes);
}

void AttentionRunner::run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace,
                          const Stream& stream) {
  const Plan& plan = *plans_.at(key_of(work, operands));
  auto* const on = static_cast<cudaStream_t>(stream.stream);
  // Where k and v begin in a row, in bytes.
  const std::int64_t k_at = work.heads * work.head_dim * 2, v_at = k_at + work.kv_heads * work.head_dim * 2;
  const auto at = [](const exec::Operand& operand, std::int64_t bytes) -> void* {
    return static_cast<std::byte*>(operand.data) + bytes;
  };
  float scale = 1.0f / std::sqrt(static_cast<float>(work.head_dim)), one = 1,
        masked = cudnn().GetVersion() < kInfinityVersion ? std::numeric_limits<float>::lowest()
                                                      : -std::numeric_limits<float>::infinity();
  std::vector<std::int64_t> ids = {kQ, kK, kV, kO, kStats, kScale};
  std::vector<void*> data = {at(operands[0], 0), at(operands[0], k_at), at(operands[0], v_at),
                             operands[1].data,   operands[2].data,      &scale};
  if (plan.shape.is_causal) {
    ids.push_back(kMasked);
    data.push_back(&masked);
  }
  std::byte* left = workspace;
  if (!plan.is_forward) {
    std::byte* sums = left;
    std::byte* dq = sums + plan.sums_bytes();
    left = dq + plan.dq_bytes();
    if (cudnn().GetVersion() < kClearsSumsVersion &&
        cudaMemsetAsync(dq, 0, static_cast<std::size_t>(plan.dq_bytes()), on) != cudaSuccess)
      throw runtime_failure("clearing the sums of attention");
    ids.insert(ids.end(), {kDO, kDQ, kDK, kDV, kSum, kDQSum, kOne});
    data.insert(data.end(), {operands[3].data, at(operands[4], 0), at(operands[4], k_at), at(operands[4], v_at),
                             static_cast<void*>(sums), static_cast<void*>(dq), static_cast<void*>(&one)});
  }
  try {
    check(cudnn().SetStream(handle_, on));
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data.data(),
             static_cast<std::int64_t>(data.size()));
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), static_cast<std::int64_t>(ids.size()));
    void* const space = left;
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, space);
    pack.finalize();
    check(cudnn().BackendExecute(handle_, plan.plan->get(), pack.get()));
  } catch (const CudnnError& error) {
    throw runtime_failure("cuDNN: " + describe(Work(work)) + ": " + error.what);
  }
}

}  // namespace stretto::cuda
