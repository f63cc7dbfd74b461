#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/ops/dtype.hpp"
#include "model/ops/expr.hpp"
#include "model/schedule/ids.hpp"
#include "model/schedule/mesh.hpp"
#include "model/schedule/module.hpp"
#include "model/schedule/state.hpp"
#include "model/schedule/tensor_role.hpp"
#include "model/schedule/work.hpp"

namespace stretto {

// The schedule of one training step: the operations of each rank with their lanes, waits and buffers. Built once by
// `model/lower` and `model/overlap`, then simulated by `sim` and run by `exec`. A value type; never changed after it
// has been verified. See docs/schedule.md.

// ---- buffers ----

enum class BufferKind : std::uint8_t {
  parameter,  // initialised before step 0, lives across steps
  gradient,
  optimizer_state,  // initialised before step 0, lives across steps
  activation,
  workspace,
  input,   // written from outside before every step
  scalar,  // small results (loss, norm) readable after the step
};
const char* name_of(BufferKind kind);
// Returns whether the contents at the end of a step are the contents at the start of the next.
inline bool is_persistent(BufferKind kind) {
  return kind == BufferKind::parameter || kind == BufferKind::optimizer_state;
}

// One allocation of a rank. A rank has the storages that its program uses, and those that no program uses.
struct Storage {
  std::string name;
  Dtype dtype = Dtype::f32;
  BufferKind kind = BufferKind::workspace;
  std::int64_t elements = 0;
  // Elements in use where that depends on data: when all experts have equally many rows. 0: all
  std::int64_t filled = 0;
  std::int64_t bytes() const { return elements * bytes_of(dtype); }
  std::int64_t filled_bytes() const { return filled > 0 ? filled * bytes_of(dtype) : bytes(); }
};

// Position of one instance of a tensor: `offset` elements into a storage.
struct TensorPlace {
  StorageId storage = 0;
  std::int64_t offset = 0;
};

// A named family of equal arrays: one for each (layer, slot). "h.qkv.weight" has a layer dimension and lies in buckets;
// "qkv_out" has a layer and a slot (micro-batches rotate through slots) and storages of its own.
struct Tensor {
  std::string name;
  std::int64_t rows = 1, cols = 1;  // row-major, contiguous
  std::int64_t layers = 1, slots = 1;
  std::vector<TensorPlace> places;  // [layer · slots + slot]
  TensorRole role = TensorRole::none;
  std::int64_t elements() const { return rows * cols; }
};

// The inputs that are written into every rank's memory before a step, and the results that are read after it.
struct StepData {
  TensorId tokens = 0, targets = 0;      // ids, with a slot for each micro-batch
  std::optional<TensorId> dropout_keys;  // [layer][micro-batch]: kDropoutKeyWords words
  std::optional<TensorId> documents;     // [micro-batch]: first positions of documents (kDocuments)
  std::optional<TensorId> loss_weight;   // as CrossEntropy reads it
  TensorId hyper = 0;                    // the optimizer's scalars, as AdamW reads them
  TensorId metrics = 0;                  // {loss, squared norm of the gradient}, on every rank
  // Index in the global batch of a rank's first sample of a micro-batch; the rank's other samples follow.
  Expr first_sample = 0;
  SequenceParts parts;  // the tokens that the rank has of every sequence
};

enum class AccessMode : std::uint8_t {
  read,
  write,       // every byte of the view is overwritten, old contents ignored
  accumulate,  // old contents are read and updated
};

// A slice of one instance of a tensor: `rows` rows of `cols` elements. Rows begin `ld` elements apart, and the first
// row begins `offset` elements into the instance.
struct View {
  TensorId tensor = 0;
  Expr layer = 0;
  Expr slot = 0;
  Expr offset = 0;
  std::int64_t rows = 1, cols = 1, ld = 1;
  bool operator==(const View&) const = default;
};

struct Access {
  AccessMode mode = AccessMode::read;
  View view;
  bool operator==(const Access&) const = default;
};

// ---- operations ----

enum class Phase : std::uint8_t { setup, forward, dgrad, wgrad, grad_sync, optimizer, param_sync };
const char* name_of(Phase phase);

enum class EdgeKind : std::uint8_t {
  finish_start,  // the waiting operation starts after the other has finished
  start_start,   // … after the other has started (`launch_before`: the other operation must be resident first)
};

// An operation of the program by name: its template, its coordinates, and the number of steps ago.
struct OpAddress {
  OpId op = 0;
  std::int64_t layer = 0;
  std::int64_t micro_batch = 0;
  std::int64_t chunk = 0;
  int steps_ago = 0;  // 0: this step; 1: the step before
};

struct Edge {
  EdgeKind kind = EdgeKind::finish_start;
  OpAddress on;
};

// A template, instantiated by every call of a block that holds it; several blocks may hold it. The order itself orders
// operations of one lane; only waits across lanes are stated: waits within a block on the block, all others on the
// call.
struct Operation {
  std::string name;  // "fc1.dgrad", unique in the schedule
  Work work;
  LaneId lane = 0;
  Phase phase = Phase::forward;
  std::vector<Access> accesses;  // in the order of operands that work.hpp documents for the kind
  Module module = Module::none;
  Recomputed recomputed = Recomputed::none;
  Factor codes_of = Factor::none;  // the factor of a linear layer that it makes codes of, or their scale
  bool is_recomputed() const { return recomputed != Recomputed::none; }
  bool operator==(const Operation&) const = default;
};

// A wait inside a block, valid for every call of it: ops[op] waits for ops[on] of the same call.
struct BlockWait {
  std::uint32_t op = 0;
  EdgeKind kind = EdgeKind::finish_start;
  std::uint32_t on = 0;
};

// A straight-line list of operations: one layer's forward, its backward, an optimizer shard. The operations may be on
// several lanes; the block states the waits among them once for all calls.
struct Block {
  std::string name;
  std::vector<OpId> ops;
  std::vector<BlockWait> waits = {};  // by op
};

// One entry of an order: operations [first, first + count) of a block at the given coordinates. A rewrite that inserts
// something between two operations of a call splits the call in two.
struct Call {
  BlockId block = 0;
  std::int64_t layer = 0;
  std::int64_t micro_batch = 0;
  std::int64_t chunk = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::vector<Edge> waits;  // before the first operation of this call
  // `slot` is the instance of the activations that the micro-batch uses. `buffer` is the buffer that it uses at the
  // boundary of a model chunk (the output in forward, the gradient in backward). Lowering assigns both when it makes
  // the order; views may name them.
  std::int64_t slot = 0;
  std::int64_t buffer = 0;
  // Issued in one group with the previous call (ncclGroupStart … ncclGroupEnd): both start when the waits of the whole
  // group are met, and they finish in order. Only for calls of one send or receive each, on one lane.
  bool joined = false;
  // Calls of one sequence run one after the other: the first operation of a call waits until all lanes of the previous
  // call of that sequence have finished it. The first call of a step waits for the last call of the step before. 0: the
  // call belongs to no sequence. Calls of different sequences wait for each other only where waits say so.
  std::uint8_t sequence = 0;
  // Concurrent with the previous call of the sequence: this call waits for what that call waits for, and the next call
  // waits for both. Joined calls are always concurrent.
  bool concurrent = false;
};

// The program of a role: every rank of a pipeline stage follows it. List order is host issue order.
struct Program {
  std::string role;  // "rank"; with pipeline parallelism "stage 0", …
  std::vector<Call> order;
};

// ---- where things run ----

enum class LaneKind : std::uint8_t { compute, communication };
constexpr int kHighPriority = -1;
struct Lane {
  std::string name;  // "compute", "dp"
  LaneKind kind = LaneKind::compute;
  // CUDA stream priority. Operations that wait for cores of a device get them in this order, lowest number first. A
  // running operation is never preempted.
  int priority = 0;
  // Hardware queue of the lane. Lanes of one queue are dispatched in host issue order: an operation starts only after
  // all operations issued earlier to the queue have started (CUDA_DEVICE_MAX_CONNECTIONS). -1: a queue of its own.
  int queue = -1;
};

// The hardware that moves the bytes: kernels that hold an SM (on the host a core) for each channel, even while they
// wait for their peers; the device's copy engines; or the network card, whose kernels are too small to count.
enum class CommEngine : std::uint8_t { sm, copy_engine, nic };

// The library that dispatches and combines rows of experts between GPUs: NCCL's messages; or kernels that send a token
// once to a rank, and once to a node, whichever of its experts are there (DeepEP; NVIDIA's HybridEP, which also sorts
// the rows; NCCL's EP, which runs HybridEP's kernels). Results are the same, and ranks of a host have one way to do it.
enum class TokenTransport : std::uint8_t { nccl, deepep, hybridep, ncclep };
const char* name_of(TokenTransport transport);  // "nccl", …

// A family of process groups: one for each set of ranks that differ only on `axes` of the mesh. Operations of one
// communicator are serialised, and every member issues them in the same order.
struct Communicator {
  std::string name;  // "dp"
  std::vector<Coord> axes;
  CommEngine engine = CommEngine::nic;
  int channels = 1;  // CTAs, when engine is sm
  std::int64_t size = 1;
  // For a communicator with one axis: only ranks at these coordinates of the axis are members; empty: all ranks. (Tied
  // embeddings: first and last stage.)
  std::vector<std::int64_t> subset = {};
  // Its all-gathers and reduce-scatters join and cut the tokens of a micro-batch (tensor parallelism). Frameworks may
  // hold tokens as the second dimension, and then they copy.
  bool joins_tokens = false;
  TokenTransport transport = TokenTransport::nccl;
};

// The map from ranks to devices: rank r is on device r / ranks_per_device and may use any of the device's `cores`
// (host) or SMs; a compute operation occupies `threads_per_rank` cores while it runs. Four ranks on a 2-core host and
// four ranks on one GPU are one concept.
struct Placement {
  std::int64_t ranks_per_device = 1;
  int threads_per_rank = 1;
};

struct Schedule {
  std::string name;                     // name of the mode: "plain", "overlap_grad_reduce", …
  std::vector<std::string> modes = {};  // names of the overlap modes that act; empty: the plain schedule
  Dtype compute_dtype = Dtype::f32;     // type of operands, unless their storages say otherwise
  Mesh mesh;
  Placement placement;
  std::vector<Lane> lanes;
  std::vector<Communicator> communicators;
  std::vector<Storage> storages;
  std::vector<Tensor> tensors;
  StateMap state;
  StepData step_data;
  std::vector<Operation> operations;
  std::vector<Block> blocks;
  std::vector<Program> programs;   // one per role
  std::vector<std::string> notes;  // one line for each knob that was requested but is off, with the reason

  // Returns the index of the program that a rank follows: its pipeline stage, or 0 when there is one program for all.
  std::size_t role_of(const Coordinates& at) const {
    return programs.size() == 1 ? 0 : static_cast<std::size_t>(at[Coord::pp]);
  }
  bool has_mode(std::string_view mode) const { return std::find(modes.begin(), modes.end(), mode) != modes.end(); }
  Dtype dtype_of(const View& view) const { return storages[tensors[view.tensor].places.front().storage].dtype; }
  // nullopt when absent.
  std::optional<TensorId> find_tensor(const std::string& name) const;
  std::optional<OpId> find_operation(const std::string& name) const;
};

// Returns the type in which a Gemm multiplies: the wider one of A's and B's types.
Dtype product_type(const Schedule& schedule, const Operation& gemm);

// Returns the rank's number within its process group, from 0 (NCCL's rank in the communicator).
Expr place_in(const Schedule& schedule, const Communicator& communicator);

}  // namespace stretto
