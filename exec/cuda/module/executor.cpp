// The executor of libstretto_cuda.so: makes the calls that the launch plan says.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "exec/cuda/cuda.hpp"
#include "exec/cuda/kernels/launch_work.hpp"
#include "exec/cuda/kernels/share.hpp"
#include "exec/cuda/launch_plan.hpp"
#include "exec/cuda/module/attention.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/gemm.hpp"
#include "exec/cuda/module/workspace.hpp"
#include "model/ring.hpp"

namespace stretto::cuda {
namespace {

// Handles that CUDA gives, released when they go.
struct DeviceMemory {
  std::byte* data = nullptr;
  explicit DeviceMemory(std::int64_t bytes) {
    check(cudaMalloc(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))), "taking memory");
  }
  ~DeviceMemory() { cudaFree(data); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
};
struct CudaStream {
  cudaStream_t stream = nullptr;
  explicit CudaStream(int priority) {
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "creating a stream");
  }
  ~CudaStream() { cudaStreamDestroy(stream); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
};
struct CudaEvent {
  cudaEvent_t event = nullptr;
  explicit CudaEvent(bool timed) {
    check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "creating an event");
  }
  ~CudaEvent() { cudaEventDestroy(event); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
};

// What the host sees of a rank: the same storages, packed.
RolePlan visible_part(const Schedule& schedule, const RolePlan& plan) {
  RolePlan part;
  part.offset_bytes.assign(schedule.storages.size(), RolePlan::kNowhere);
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    const Storage& storage = schedule.storages[id];
    const bool is_visible = is_persistent(storage.kind) || storage.kind == BufferKind::input ||
                            storage.kind == BufferKind::scalar || storage.kind == BufferKind::gradient;
    if (!is_visible || plan.offset_bytes[id] == RolePlan::kNowhere) continue;
    part.offset_bytes[id] = part.bytes;
    part.bytes += (storage.bytes() + 63) / 64 * 64;
  }
  return part;
}

bool belongs_to(BufferKind kind, exec::Executor::Part part) {
  switch (part) {
    case exec::Executor::Part::state:
      return is_persistent(kind);
    case exec::Executor::Part::inputs:
      return kind == BufferKind::input;
    case exec::Executor::Part::results:
      return kind == BufferKind::scalar;
    case exec::Executor::Part::all:
      return true;
  }
  return false;
}

struct Rank {
  const RolePlan& plan;
  DeviceMemory arena;
  host::RankMemory seen;
  host::BoundOperands operands;  // in the arena
  Rank(const Schedule& schedule, const RolePlan& of_role)
      : plan(of_role), arena(of_role.bytes), seen(schedule, visible_part(schedule, of_role)) {}
};

class CudaExecutor final : public exec::Executor {
 public:
  CudaExecutor(const Schedule& schedule, const MemoryPlan& plan, const CudaOptions& options,
               std::vector<BoundProgram> programs, LaunchPlan launches)
      : schedule_(schedule),
        memory_plan_(plan),
        options_(options),
        programs_(std::move(programs)),
        launches_(std::move(launches)) {
    find_device();
    require_free(planned_bytes(), "");
    gemms_.emplace();
    for (const BoundProgram& program : programs_) add_rank(program);
    for (std::uint32_t s = 0; s < launches_.streams; ++s) {
      streams_.push_back(std::make_unique<CudaStream>(priority_of(schedule.lanes[s % schedule.lanes.size()])));
      workspaces_.push_back(std::make_unique<DeviceMemory>(static_cast<std::int64_t>(kWorkspace_bytes)));
    }
    prepare_attention();
    for (std::uint32_t e = 0; e < 2 * launches_.events; ++e) events_.push_back(std::make_unique<CudaEvent>(false));
    for (const BoundProgram& program : programs_) {
      first_mark_.push_back(marks_.size());
      for (std::size_t i = 0; i < kMarks * program.ops.size(); ++i) marks_.push_back(std::make_unique<CudaEvent>(true));
    }
    tune_gemms();
    check(cudaDeviceSynchronize(), "preparing");
  }

  ~CudaExecutor() override { cudaDeviceSynchronize(); }

  Timeline run(int steps) override {
    const CudaEvent origin(true), step_begin(true);
    check(cudaEventRecord(origin.event, streams_.front()->stream), "timing");
    issue(steps, &step_begin);
    return timeline(origin, step_begin);
  }

  Timeline run_without_rows(int steps) override {
    const auto begin = std::chrono::steady_clock::now();
    issue(steps, nullptr);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    Timeline timeline;
    timeline.step_end = took.count() * 1000 / steps;
    return timeline;
  }

  std::int64_t ranks() const override { return static_cast<std::int64_t>(programs_.size()); }
  const std::vector<BoundProgram>& programs() const override { return programs_; }
  host::RankMemory& memory(std::int64_t rank) override { return ranks_[static_cast<std::size_t>(rank)]->seen; }

  std::vector<std::string> notes() const override { return notes_; }
  void upload(Part part) override { transfer(part, true); }
  void download(Part part) override { transfer(part, false); }

 private:
  // Makes the calls of these steps and waits for them. The times of the last are taken when `step_begin` is given.
  void issue(int steps, const CudaEvent* step_begin) {
    if (has_failed_) throw runtime_failure("this executor has failed before and cannot go on");
    has_failed_ = true;  // until all is well
    for (int step = 0; step < steps; ++step, ++step_) {
      const bool is_timed = step_begin != nullptr && step + 1 == steps;
      // The step before is over when all its streams are; only the first is asked, because waiting for the others would
      // keep steps from overlapping.
      if (is_timed) check(cudaEventRecord(step_begin->event, streams_.front()->stream), "timing");
      for (const LaunchAction& action : launches_.actions) act(action, is_timed);
    }
    finish();
    has_failed_ = false;
  }

  // Of an operation: all that it waits for is done; bytes begin to move; complete.
  enum Mark : std::size_t { ready, moving, done, kMarks };
  cudaEvent_t mark(std::uint32_t rank, std::uint32_t op, Mark which) const {
    return marks_[first_mark_[rank] + kMarks * op + which]->event;
  }

  void find_device() {
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0)
      throw runtime_failure(std::string("no GPU: ") + (error == cudaSuccess ? "no device"
                                                       : error == cudaErrorInsufficientDriver
                                                           ? "no driver, or one too old for this CUDA"
                                                           : cudaGetErrorString(error)));
    check(cudaSetDevice(0), "choosing the device");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "asking the device");
    sms_ = properties.multiProcessorCount;
    device_ = properties.name;
  }

  // cuDNN's plans, where it has any. Attention is on the compute lane, so that a rank needs one workspace.
  void prepare_attention() {
    attention_.emplace();
    for (std::size_t r = 0; r < programs_.size(); ++r)
      for (std::uint32_t op = 0; op < programs_[r].ops.size(); ++op) {
        const auto* attention = std::get_if<Attention>(&schedule_.operations[programs_[r].ops[op].op].work);
        if (attention == nullptr) continue;
        const std::span<const exec::Operand> operands = ranks_[r]->operands.of(op);
        if (attention_->prepare(*attention, operands)) {
          attention_bytes_ = std::max(attention_bytes_, attention_->workspace_bytes(*attention, operands));
          continue;
        }
        const std::string note = fmt::format("{}: our own kernels, which do not use tensor cores; cuDNN: {}",
                                             describe(Work(*attention)), attention_->why_not());
        if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
      }
    if (attention_bytes_ == 0) return;
    const std::int64_t bytes = attention_bytes_ * static_cast<std::int64_t>(ranks_.size());
    require_free(bytes, " for cuDNN's attention");
    attention_workspace_ = std::make_unique<DeviceMemory>(bytes);
  }

  std::int64_t planned_bytes() const {
    std::int64_t bytes = overhead_bytes(schedule_);
    for (const BoundProgram& program : programs_)
      bytes += memory_plan_.roles[schedule_.role_of(program.coordinates)].bytes;
    return bytes;
  }

  void require_free(std::int64_t needed, const char* what) const {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    if (needed <= static_cast<std::int64_t>(free)) return;
    const RolePlan& role = memory_plan_.roles[schedule_.role_of(programs_.front().coordinates)];
    throw runtime_failure(fmt::format(
        "out of memory: {} ranks need {:.1f} GiB{} of {}'s {:.1f} GiB, of which {:.1f} are free; the largest buffers "
        "of a rank: {}",
        programs_.size(), static_cast<double>(needed) / (1 << 30), what, device_,
        static_cast<double>(total) / (1 << 30), static_cast<double>(free) / (1 << 30),
        largest_storages(schedule_, role)));
  }

  void add_rank(const BoundProgram& program) {
    const RolePlan& role = memory_plan_.roles[schedule_.role_of(program.coordinates)];
    ranks_.push_back(std::make_unique<Rank>(schedule_, role));
    Rank& rank = *ranks_.back();
    // NaN in every floating type, so that what nobody wrote shows.
    check(cudaMemset(rank.arena.data, 0xff, static_cast<std::size_t>(role.bytes)), "clearing memory");
    rank.operands = host::bind_operands(
        schedule_, program, [&](StorageId storage) { return rank.arena.data + role.offset_bytes[storage]; });
  }

  static int priority_of(const Lane& lane) {
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities");
    return std::clamp(lane.priority, highest, lowest);
  }

  Stream stream_of(std::uint32_t stream) const {
    return {streams_[stream]->stream, workspaces_[stream]->data, kWorkspace_bytes, sms_};
  }

  // On memory that holds nothing yet.
  void tune_gemms() {
    for (std::size_t r = 0; r < programs_.size(); ++r)
      for (std::size_t op = 0; op < programs_[r].ops.size(); ++op) {
        const BoundOp& bound = programs_[r].ops[op];
        if (const auto* gemm = std::get_if<Gemm>(&schedule_.operations[bound.op].work))
          gemms_->tune(*gemm, ranks_[r]->operands.of(static_cast<std::uint32_t>(op)),
                       stream_of(static_cast<std::uint32_t>(r * schedule_.lanes.size() + bound.lane)));
      }
    for (const auto& rank : ranks_)
      check(cudaMemset(rank->arena.data, 0xff, static_cast<std::size_t>(rank->plan.bytes)), "clearing memory");
  }

  void act(const LaunchAction& action, bool is_timed) {
    const cudaStream_t stream = streams_[action.stream]->stream;
    // Events of this step and the one before take turns.
    const auto event_of = [&](bool of_step_before) {
      return events_[2 * action.event + static_cast<std::uint32_t>((step_ + of_step_before) % 2)]->event;
    };
    switch (action.kind) {
      case LaunchAction::Kind::wait:
        return check(cudaStreamWaitEvent(stream, event_of(action.of_step_before), 0), "waiting for an event");
      case LaunchAction::Kind::record:
        return check(cudaEventRecord(event_of(false), stream), "recording an event");
      case LaunchAction::Kind::begin:
        if (is_timed) check(cudaEventRecord(mark(action.rank, action.op, ready), stream), "timing");
        return;
      case LaunchAction::Kind::end:
        if (is_timed) check(cudaEventRecord(mark(action.rank, action.op, done), stream), "timing");
        return;
      case LaunchAction::Kind::launch:
        if (is_timed && action.phase == 0)
          check(cudaEventRecord(mark(action.rank, action.op, moving), stream), "timing");
        try {
          return launch(action);
        } catch (const Error& error) {
          throw runtime_failure(fmt::format("rank {}: {}: {}", action.rank,
                                            label(schedule_, programs_[action.rank].ops[action.op]), error.what()));
        }
    }
  }

  void launch(const LaunchAction& action) {
    const BoundProgram& program = programs_[action.rank];
    const Work& work = schedule_.operations[program.ops[action.op].op].work;
    const std::span<const exec::Operand> operands = ranks_[action.rank]->operands.of(action.op);
    const Stream stream = stream_of(action.stream);
    if (const auto* gemm = std::get_if<Gemm>(&work)) return gemms_->run(*gemm, operands, stream);
    if (const auto* attention = std::get_if<Attention>(&work); attention && attention_->prepare(*attention, operands))
      return attention_->run(*attention, operands, attention_workspace_->data + attention_bytes_ * action.rank, stream);
    if (const auto* collective = std::get_if<Collective>(&work)) return share(action, *collective, stream);
    if (const auto* message = std::get_if<PointToPoint>(&work)) {
      const LaunchPlan::Place sender = launches_.meetings[action.meeting].front();
      const std::int64_t bytes = message->elements * bytes_of(operands[0].dtype);
      return run_message(ranks_[sender.rank]->operands.of(sender.op)[0].data, operands[0].data, bytes,
                         pace(schedule_.communicators[message->communicator], 1, bytes, 1), stream);
    }
    launch_work(work, program.coordinates, operands, stream);
  }

  // As many blocks as the communicator has channels, and as long as its link takes.
  Pace pace(const Communicator& communicator, std::int64_t steps, std::int64_t bytes, int phases) const {
    Pace pace;
    pace.ctas = communicator.engine == CommEngine::sm ? communicator.channels : options_.ctas;
    if (options_.link_GBps > 0)
      pace.least_ns = static_cast<std::int64_t>((static_cast<double>(steps) * options_.link_latency_us * 1e3 +
                                                 static_cast<double>(bytes) / options_.link_GBps) /
                                                phases);
    return pace;
  }

  void share(const LaunchAction& action, const Collective& collective, const Stream& stream) {
    const Communicator& communicator = schedule_.communicators[collective.communicator];
    std::vector<local::Buffers> buffers;
    int self = 0;
    for (const auto& [rank, op] : launches_.meetings[action.meeting]) {
      if (rank == action.rank) self = static_cast<int>(buffers.size());
      const std::span<const exec::Operand> theirs = ranks_[rank]->operands.of(op);
      buffers.push_back({theirs.front().data, theirs.back().data});
    }
    const Dtype dtype = ranks_[action.rank]->operands.of(action.op).front().dtype;
    const RingCost ring = ring_cost(collective.kind, dtype, collective.elements, communicator.size);
    run_share(collective.kind, dtype, collective.elements, self, buffers, action.phase,
              pace(communicator, ring.steps, ring.edge_bytes, local::phases(collective.kind)), stream);
  }

  // Waits for everything, no longer than the timeout.
  void finish() {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t s = 0; s < streams_.size(); ++s)
      while (true) {
        const cudaError_t error = cudaStreamQuery(streams_[s]->stream);
        if (error == cudaSuccess) break;
        if (error != cudaErrorNotReady) check(error, "running a step");
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > options_.timeout_s)
          throw runtime_failure(fmt::format("rank {}, lane {} has not finished its step after {} s",
                                            s / schedule_.lanes.size(),
                                            schedule_.lanes[s % schedule_.lanes.size()].name, options_.timeout_s));
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
  }

  Timeline timeline(const CudaEvent& origin, const CudaEvent& step_begin) const {
    const auto at = [&](cudaEvent_t event) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, origin.event, event), "reading times");
      return static_cast<Picoseconds>(static_cast<double>(ms) * 1e9);
    };
    Timeline timeline;
    timeline.step_begin = at(step_begin.event);
    for (std::uint32_t r = 0; r < programs_.size(); ++r)
      for (std::uint32_t op = 0; op < programs_[r].ops.size(); ++op) {
        const Work& work = schedule_.operations[programs_[r].ops[op].op].work;
        const auto* message = std::get_if<PointToPoint>(&work);
        TimelineRow row;
        row.rank = static_cast<std::int32_t>(r);
        row.op = op;
        row.ready = row.start = at(mark(r, op, ready));
        row.end = at(mark(r, op, done));
        // A send moves nothing itself.
        row.transfer = message != nullptr && message->is_send ? row.start : at(mark(r, op, moving));
        timeline.step_end = std::max(timeline.step_end, row.end);
        timeline.rows.push_back(row);
      }
    return timeline;
  }

  void transfer(Part part, bool up) {
    for (const auto& rank : ranks_)
      for (StorageId id = 0; id < schedule_.storages.size(); ++id) {
        const Storage& storage = schedule_.storages[id];
        if (!rank->seen.has(id) || !belongs_to(storage.kind, part)) continue;
        std::byte* there = rank->arena.data + rank->plan.offset_bytes[id];
        const auto bytes = static_cast<std::size_t>(storage.bytes());
        check(up ? cudaMemcpy(there, rank->seen.at(id), bytes, cudaMemcpyHostToDevice)
                 : cudaMemcpy(rank->seen.at(id), there, bytes, cudaMemcpyDeviceToHost),
              "copying between host and device");
      }
    // What comes from pageable memory may still be on its way, and streams do not wait for it.
    check(cudaDeviceSynchronize(), "copying between host and device");
  }

  const Schedule& schedule_;
  const MemoryPlan memory_plan_;
  const CudaOptions options_;
  int sms_ = 1;
  std::string device_;
  std::vector<BoundProgram> programs_;
  LaunchPlan launches_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<CudaStream>> streams_;
  std::vector<std::unique_ptr<DeviceMemory>> workspaces_;  // [stream]
  std::vector<std::unique_ptr<CudaEvent>> events_;         // [2 · event + parity of the step]
  std::vector<std::size_t> first_mark_;                    // [rank]
  std::vector<std::unique_ptr<CudaEvent>> marks_;
  std::optional<GemmRunner> gemms_;  // these are made when there is a device
  std::optional<AttentionRunner> attention_;
  std::int64_t attention_bytes_ = 0;                   // of a rank
  std::unique_ptr<DeviceMemory> attention_workspace_;  // [rank]
  std::vector<std::string> notes_;
  std::uint64_t step_ = 0;
  bool has_failed_ = false;
};

}  // namespace
}  // namespace stretto::cuda

stretto::exec::Executor* stretto_make_cuda_executor(const stretto::Schedule& schedule, const stretto::MemoryPlan& plan,
                                                    const stretto::cuda::CudaOptions& options,
                                                    std::vector<stretto::BoundProgram> programs,
                                                    stretto::cuda::LaunchPlan launches) {
  return new stretto::cuda::CudaExecutor(schedule, plan, options, std::move(programs), std::move(launches));
}
