#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/mesh.hpp"
#include "model/schedule/dtype.hpp"
#include "model/schedule/expr.hpp"
#include "model/schedule/ids.hpp"
#include "model/schedule/state.hpp"
#include "model/schedule/work.hpp"

namespace stretto {

// The schedule of one training step: what each rank does, on which lane, after what, on which buffers. Built once by
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
// True when the contents at the end of a step are the contents at the start of the next.
inline bool is_persistent(BufferKind kind) {
  return kind == BufferKind::parameter || kind == BufferKind::optimizer_state;
}

// One allocation of a rank. A rank has those that its program uses, and those that no program uses.
struct Storage {
  std::string name;
  Dtype dtype = Dtype::f32;
  BufferKind kind = BufferKind::workspace;
  std::int64_t elements = 0;
  std::int64_t bytes() const { return elements * bytes_of(dtype); }
};

// Where one instance of a tensor lies: `offset` elements into a storage.
struct TensorPlace {
  StorageId storage = 0;
  std::int64_t offset = 0;
};

// A named family of equal arrays: one per (layer, slot). "h.qkv.weight" has a layer dimension and lies in buckets;
// "qkv_out" has a layer and a slot (micro-batches rotate through slots) and storages of its own.
struct Tensor {
  std::string name;
  std::int64_t rows = 1, cols = 1;  // row-major, contiguous
  std::int64_t layers = 1, slots = 1;
  std::vector<TensorPlace> places;  // [layer · slots + slot]
  std::int64_t elements() const { return rows * cols; }
};

// What is written into every rank's memory before a step, and read after it.
struct StepData {
  TensorId tokens = 0, targets = 0;      // ids, with a slot for each micro-batch
  std::optional<TensorId> dropout_keys;  // [layer][micro-batch]: kDropoutKeyWords words
  TensorId hyper = 0;                    // the optimizer's scalars, as AdamW reads them
  TensorId metrics = 0;                  // {loss, squared norm of the gradient}, on every rank
  // Place in the global batch of the first sample that a rank has in a micro-batch; its others follow.
  Expr first_sample = 0;
};

enum class AccessMode : std::uint8_t {
  read,
  write,       // every byte of the view is overwritten, old contents ignored
  accumulate,  // old contents are read and updated
};

// A slice of one instance of a tensor: `rows` rows of `cols` elements, `ld` elements apart, `offset` elements in.
struct View {
  TensorId tensor = 0;
  Expr layer = 0;
  Expr slot = 0;
  Expr offset = 0;
  std::int64_t rows = 1, cols = 1, ld = 1;
};

struct Access {
  AccessMode mode = AccessMode::read;
  View view;
};

// ---- operations ----

enum class Phase : std::uint8_t { setup, forward, dgrad, wgrad, grad_sync, optimizer, param_sync };
const char* name_of(Phase phase);

enum class EdgeKind : std::uint8_t {
  finish_start,  // the waiting operation starts after the other has finished
  start_start,   // … after the other has started (`launch_before`: the other must be resident first)
};

// An operation of the program by name: which template, at which coordinates, how many steps ago.
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

// A template, instantiated by every call of a block that holds it. Operations of one lane are ordered by the order
// itself; only waits across lanes are stated: within a block on the block, everything else on the call.
struct Operation {
  std::string name;  // "fc1.dgrad", unique in the schedule
  Work work;
  LaneId lane = 0;
  Phase phase = Phase::forward;
  std::vector<Access> accesses;  // in the operand order that Work documents
};

// A wait that goes with a block wherever it is called: ops[op] waits for ops[on], at the same coordinates.
struct BlockWait {
  std::uint32_t op = 0;
  EdgeKind kind = EdgeKind::finish_start;
  std::uint32_t on = 0;
};

// A straight-line list of operations: one layer's forward, its backward, an optimizer shard. They may be on several
// lanes; the waits among them are stated here, once for all calls.
struct Block {
  std::string name;
  std::vector<OpId> ops;
  std::vector<BlockWait> waits = {};  // by op
};

// One entry of an order: operations [first, first + count) of a block at the given coordinates. A rewrite that needs to
// put something between two operations of a call splits it in two.
struct Call {
  BlockId block = 0;
  std::int64_t layer = 0;
  std::int64_t micro_batch = 0;
  std::int64_t chunk = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::vector<Edge> waits;  // before the first operation of this call
  // Which instance of the activations the micro-batch uses, and which of the buffers at the boundary of a model chunk
  // (its output in forward, the gradient in backward). Rotation follows from the order; both may be named in views.
  std::int64_t slot = 0;
  std::int64_t buffer = 0;
  // Issued in one group with the call before it (ncclGroupStart … ncclGroupEnd): both start when the waits of all of
  // the group are met, and they finish in order. Only for calls of one send or receive each, on one lane.
  bool joined = false;
  // Calls of one sequence stand one behind the other: the first operation of a call waits for the end of the call of
  // the same sequence before it, on whatever lanes that ends; the first call of a step, for the last of the step
  // before. 0: the call is of no sequence. Calls of different sequences wait for each other only where waits say so.
  std::uint8_t sequence = 0;
  // Stands beside the call before it in the sequence: it waits for what that one waits for, and what follows, for both.
  // Joined calls do so anyway.
  bool beside = false;
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
  // CUDA stream priority: of what waits for cores of a device, lower comes first. What runs is never interrupted.
  int priority = 0;
  // Hardware queue that it feeds. Lanes of one queue are dispatched in host issue order: an operation starts only after
  // what was issued before it to the queue has started (CUDA_DEVICE_MAX_CONNECTIONS). -1: a queue of its own.
  int queue = -1;
};

// What moves the bytes: kernels, which hold an SM (on the host a core) for each channel and wait there for their peers;
// copy engines of the device; or the network card, with kernels too small to count.
enum class CommEngine : std::uint8_t { sm, copy_engine, nic };

// A group (mesh + axes) and one instance of it: operations of one communicator are serialised and every member issues
// them in the same order.
struct Communicator {
  std::string name;  // "dp"
  std::vector<Coord> axes;
  CommEngine engine = CommEngine::nic;
  int channels = 1;  // CTAs, when engine is sm
  std::int64_t size = 1;
  // Only members with these coordinates on the only axis; empty: all. (Tied embeddings: first and last stage.)
  std::vector<std::int64_t> subset = {};
};

// Ranks → devices: rank r is on device r / ranks_per_device and may use any of its `cores` (host) or SMs; a compute
// operation occupies `threads_per_rank` cores while it runs. Four ranks on a 2-core host and four ranks on one GPU are
// the same concept.
struct Placement {
  std::int64_t ranks_per_device = 1;
  int threads_per_rank = 1;
};

struct Schedule {
  std::string name;  // of the mode: "plain", "overlap_grad_reduce", …
  Dtype compute_dtype = Dtype::f32;
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
  std::vector<std::string> notes;  // one line per knob that is off although it was asked for, and why

  // Index of the program that a rank follows: its pipeline stage, where stages differ.
  std::size_t role_of(const Coordinates& at) const {
    return programs.size() == 1 ? 0 : static_cast<std::size_t>(at[Coord::pp]);
  }
  // nullopt when absent.
  std::optional<TensorId> find_tensor(const std::string& name) const;
  std::optional<OpId> find_operation(const std::string& name) const;
};

// The place of a rank among the members of its instance of a communicator, 0 for the first.
Expr place_in(const Schedule& schedule, const Communicator& communicator);

// The ranks of `rank`'s instance of a communicator, in the order of their coordinates; empty when it is not a member.
std::vector<std::int64_t> members_of(const Schedule& schedule, const Communicator& communicator, std::int64_t rank);

// The member `offset` places after `rank` in the ring of its instance of the communicator; `rank` must be a member.
std::int64_t member_after(const Schedule& schedule, const Communicator& communicator, std::int64_t rank,
                          std::int64_t offset);
// The other end of a message of `rank`, and how many places the receiver is after the sender in the ring: the same for
// both ends.
struct Peer {
  std::int64_t rank = 0;
  std::int64_t distance = 0;
};
Peer peer_of(const Schedule& schedule, const PointToPoint& message, std::int64_t rank);

}  // namespace stretto
