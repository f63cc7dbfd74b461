// The executor of libstretto_cuda.so: makes the calls of the launch plan.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "exec/cuda/code_scratch.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/cuda/fault.hpp"
#include "exec/cuda/kernels/launch_work.hpp"
#include "exec/cuda/launch_plan.hpp"
#include "exec/cuda/module/attention.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/communication.hpp"
#include "exec/cuda/module/gemm.hpp"
#include "exec/cuda/module/gpu_device.hpp"
#include "exec/cuda/module/grouped_gemm.hpp"
#include "exec/cuda/module/handles.hpp"
#include "exec/cuda/module/host_counts.hpp"
#include "exec/cuda/module/product_groups.hpp"
#include "exec/cuda/module/rank.hpp"
#include "exec/cuda/module/step_graph.hpp"
#include "exec/cuda/module/step_times.hpp"
#include "exec/launch/process_group.hpp"
#include "model/schedule/residency.hpp"

namespace stretto::cuda {
namespace {

constexpr double kSpin_s = 0.001;  // busy waiting for a step, which takes longer than this says

// Tuning results of libraries take seconds to find, so they are kept for all executors of this thread: calibrating and
// comparing make many executors. A process has one device.
GemmRunner& gemm_runner(int sms) {
  thread_local std::map<int, GemmRunner> runners;
  return runners.try_emplace(sms, sms).first->second;
}
GroupedGemmRunner& grouped_gemm_runner(int sms) {
  thread_local std::map<int, GroupedGemmRunner> runners;
  return runners.try_emplace(sms, sms).first->second;
}
AttentionRunner& attention_runner() {
  thread_local AttentionRunner runner;
  return runner;
}

class CudaExecutor final : public exec::Executor {
 public:
  CudaExecutor(const Schedule& schedule, const MemoryPlan& plan, const CudaOptions& options,
               std::vector<BoundProgram> programs, LaunchPlan launches)
      : schedule_(schedule),
        memory_plan_(plan),
        options_(options),
        cudnn_dropout_(options.cudnn_attention_dropout),
        programs_(std::move(programs)),
        launches_(std::move(launches)) {
    device_ = choose_device(options_.processes);
    if (const std::string problem = problem_of_codes(schedule_, device_.compute_capability); !problem.empty())
      throw input_error(problem);
    outside_plan_ = require_memory(device_, schedule_, memory_plan_, programs_, options_);
    fork_ = std::make_unique<CudaEvent>(false);
    gemms_ = &gemm_runner(sms_of_gemms());
    if (has_grouped_gemms()) grouped_gemms_ = &grouped_gemm_runner(sms_of_gemms());
    faults_ = std::make_unique<PinnedMemory>(static_cast<std::int64_t>(programs_.size() * sizeof(Fault)));
    if (launches_.waits_on_host() && options_.graphs) {
      options_.graphs = false;
      add_note(
          "steps are launched call by call, not as CUDA graphs: data says how many rows experts have, and the host "
          "waits "
          "for the numbers; moe_pad_expert_input_to_capacity makes them equal");
    }
    for (const BoundProgram& program : programs_)
      ranks_.push_back(std::make_unique<Rank>(schedule_, program, memory_plan_.roles[program.role],
                                              registers() ? Arena::By::nccl : Arena::By::cuda));
    for (std::uint32_t s = 0; s < launches_.streams; ++s) {
      streams_.push_back(std::make_unique<CudaStream>(priority_of(schedule.lanes[s % schedule.lanes.size()])));
      joins_.push_back(std::make_unique<CudaEvent>(false));
      scratch_bytes_.push_back(scratch_bytes_of(schedule, static_cast<LaneId>(s % schedule.lanes.size())));
      workspaces_.push_back(std::make_unique<DeviceMemory>(scratch_bytes_.back()));
    }
    for (const auto& rank : ranks_) rank->write_noise();
    check(cudaDeviceSynchronize(), "writing to memory");
    prepare_attention();
    const OperandsOf operands = [this](std::uint32_t rank, std::uint32_t op) { return ranks_[rank]->operands_of(op); };
    counts_ = std::make_unique<HostCounts>(programs_, launches_, operands);
    const CountsOf counts = [this](const exec::Operand& operand) { return counts_->of(operand); };
    communication_ = options_.processes ? connect_nccl(schedule_, programs_.front(), operands, counts, options_,
                                                       stream_of(0), registered_memory())
                                        : share_gpu(schedule_, programs_, launches_, operands, counts, options_);
    if (options_.nccl_ub && !options_.processes)
      notes_.push_back("cluster.nccl_ub is off: ranks of one process share the GPU's memory and do without NCCL");
    finish();            // waits for the work that connects ranks
    cudaGetLastError();  // clears an error of a call that NCCL tried and could do without
    const std::vector<std::string> notes = communication_->notes();
    notes_.insert(notes_.end(), notes.begin(), notes.end());
    for (std::uint32_t e = 0; e < 2 * launches_.events; ++e) events_.push_back(std::make_unique<CudaEvent>(false));
    times_ = std::make_unique<StepTimes>(programs_);
    tune_gemms();
    if (options_.processes) load_kernels();
    clear(0xff);  // NaN in every floating type, so that unwritten values show
  }

  ~CudaExecutor() override {
    if (has_failed_ && communication_) {
      for (StepGraph& graph : graphs_) graph.release();  // an abort waits until no graph holds its operations
      communication_->abort();
    }
    cudaDeviceSynchronize();
    for (StepGraph& graph : graphs_) graph.release();  // before the events in them are destroyed
  }

  Timeline run(int steps) override {
    const CudaEvent origin(true);
    check(cudaEventRecord(origin.event, streams_.front()->stream), "timing");
    run_steps(steps, true);
    return times_->timeline(origin, programs_, launches_, !options_.processes);
  }

  Timeline run_without_rows(int steps) override {
    const auto begin = std::chrono::steady_clock::now();
    run_steps(steps, false);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    Timeline timeline;
    timeline.step_end = took.count() * 1000 / steps;
    return timeline;
  }

  const std::vector<BoundProgram>& programs() const override { return programs_; }
  bool is_here(std::int64_t rank) const override { return place_of(rank) < programs_.size(); }
  host::RankMemory& memory(std::int64_t rank) override { return ranks_[place_of(rank)]->seen(); }

  std::vector<std::string> notes() const override { return notes_; }
  std::optional<Device> device() const override {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for memory");
    const std::int64_t bytes = device_.memory_bytes > 0 ? device_.memory_bytes : static_cast<std::int64_t>(total);
    return Device{device_.name, device_.sms, bytes, device_.memory_GBps, outside_plan_, device_.compute_capability};
  }
  void upload(Contents part) override { transfer(part, true); }
  void download(Contents part) override { transfer(part, false); }

 private:
  std::size_t place_of(std::int64_t rank) const { return static_cast<std::size_t>(rank - programs_.front().rank); }

  // With `timed`, records the times of the last step.
  void run_steps(int steps, bool timed) {
    if (has_failed_) throw runtime_failure("this executor has failed before and cannot go on");
    has_failed_ = true;  // reset when the steps have succeeded
    for (int step = 0; step < steps; ++step) run_step(timed && step + 1 == steps);
    finish();
    has_failed_ = false;
  }

  // The first step is made of calls, in which libraries load what they need and ranks connect; later steps are graphs,
  // where capturing is possible. A graph runs after the previous one as a whole.
  void run_step(bool timed) {
    StepGraph& graph = graphs_[timed];
    if (step_ > 0 && options_.graphs && graph.runnable == nullptr) options_.graphs = capture(graph, timed);
    if (options_.graphs && graph.runnable != nullptr)
      check(cudaGraphLaunch(graph.runnable, streams_.front()->stream), "launching a step");
    else
      issue(timed, !is_idle_);
    is_idle_ = false;
    ++step_;
  }

  void issue(bool timed, bool waits_for_step_before) {
    // The previous step is over when all its streams are; only the first stream is asked, because waiting for the
    // others would keep steps from overlapping.
    if (timed && !is_capturing_) record_time(times_->begin(), streams_.front()->stream);
    for (const LaunchAction& action : launches_.actions)
      if (waits_for_step_before || action.kind != LaunchAction::Kind::wait || !action.of_step_before)
        act(action, timed);
  }

  // Captures the step. Returns false when the device or a library does not allow it, which a note then says; the step
  // is made of calls then.
  bool capture(StepGraph& graph, bool timed) {
    finish();
    is_idle_ = true;
    const cudaStream_t first = streams_.front()->stream;
    check(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), "capturing a step");
    is_capturing_ = true;
    std::string reason;
    try {
      // The record comes before the fork: in a graph no other order would put it before the beginnings of all streams.
      if (timed) record_time(times_->begin(), first);
      check(cudaEventRecord(fork_->event, first), "capturing a step");
      for (const auto& stream : streams_)
        if (stream->stream != first) check(cudaStreamWaitEvent(stream->stream, fork_->event, 0), "capturing a step");
      issue(timed, false);
      for (std::size_t s = 1; s < streams_.size(); ++s) {
        check(cudaEventRecord(joins_[s]->event, streams_[s]->stream), "capturing a step");
        check(cudaStreamWaitEvent(first, joins_[s]->event, 0), "capturing a step");
      }
    } catch (const Error& error) {
      reason = error.what();
    }
    is_capturing_ = false;
    const cudaError_t ended = cudaStreamEndCapture(first, &graph.graph);
    if (reason.empty() && ended != cudaSuccess) reason = cudaGetErrorString(ended);
    if (reason.empty())
      if (const cudaError_t error =
              cudaGraphInstantiate(&graph.runnable, graph.graph, cudaGraphInstantiateFlagUseNodePriority);
          error != cudaSuccess)
        reason = cudaGetErrorString(error);
    if (reason.empty()) return true;
    graph.runnable = nullptr;
    cudaGetLastError();  // clears an error that the next launch would report as its own
    if (options_.processes)
      throw runtime_failure("capturing a step: " + reason +
                            // other processes may have captured theirs
                            "; training.enable_cuda_graph = false does without");
    notes_.push_back("steps are launched call by call, not as CUDA graphs: " + reason);
    return false;
  }

  // Records a time. In a graph, an event has a time only when it is declared external.
  void record_time(const CudaEvent& event, cudaStream_t stream) {
    check(
        cudaEventRecordWithFlags(event.event, stream, is_capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
        "timing");
  }

  // Returns the SMs for GEMMs. NCCL's channels hold their SMs while they wait for peers: GEMMs are cut for the
  // remaining SMs, so that none of their blocks waits for a kernel to end. 0: all. Ranks that share a device wait by
  // events, which hold nothing: there GEMMs do not depend on channels, in a step as in the probes of calibration.
  int sms_of_gemms() const {
    if (!options_.processes) return 0;
    int held = 0;
    for (const BoundProgram& program : programs_)
      for (const std::vector<std::uint32_t>& lane : program.lanes) {
        int most = 0;
        for (const std::uint32_t op : lane)
          if (const Work& work = program.work_of(op); is_communication(work))
            most = std::max(most, resident_cores(schedule_.communicators[communicator_of(work)]));
        held += most;
      }
    return held == 0 ? 0 : std::max(1, device_.sms - held);
  }

  bool has_grouped_gemms() const {
    return std::any_of(schedule_.operations.begin(), schedule_.operations.end(),
                       [](const Operation& operation) { return std::holds_alternative<GroupedGemm>(operation.work); });
  }

  // Prepares cuDNN's plans, where it has any. A workspace belongs to a stream: attention on two lanes of a rank may be
  // concurrent.
  void prepare_attention() {
    attention_workspaces_.resize(launches_.streams);
    for_attention([&](const Attention& attention, std::span<const exec::Operand> operands, std::uint32_t stream) {
      attention_ = &attention_runner();
      const Stream on = stream_of(stream);
      if (attention.dropout > 0 && !cudnn_dropout_) return;
      if (attention_->prepare(attention, operands, &on)) return;
      add_note(fmt::format("{}: our own kernels, which do not use tensor cores; cuDNN: {}", describe(Work(attention)),
                           attention_->why_not()));
      // The masks are cuDNN's in all passes or in none: a gradient needs those of its forward pass.
      if (attention.dropout > 0) cudnn_dropout_ = false;
    });
    if (attention_ == nullptr) return;
    cudaGetLastError();  // clears the error of a refused plan, which the next launch would report as its own
    attention_->save();
    for (const std::string& note : attention_->notes()) add_note(note);

    std::vector<std::int64_t> bytes(launches_.streams);
    for_attention([&](const Attention& attention, std::span<const exec::Operand> operands, std::uint32_t stream) {
      const bool is_cudnn = runs_by_cudnn(attention, operands);
      if (attention.dropout > 0)
        add_note(is_cudnn
                     ? "attention dropout: cuDNN draws the masks, others than the host's and than those of another "
                       "tensor_model_parallel_size; training.cudnn_attention_dropout = false has the schedule's, "
                       "on our own kernels, which do not use tensor cores"
                     : "attention dropout: the schedule's masks, on our own kernels, which do not use tensor cores");
      // The size is above 0, so that there is memory to point to.
      if (is_cudnn)
        bytes[stream] = std::max({std::int64_t{256}, bytes[stream], attention_->workspace_bytes(attention, operands)});
    });
    require_free(device_, schedule_, memory_plan_, programs_,
                 std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), " for cuDNN's attention");
    for (std::size_t s = 0; s < bytes.size(); ++s)
      if (bytes[s] > 0) attention_workspaces_[s] = std::make_unique<DeviceMemory>(bytes[s]);
  }

  // Calls fn(attention, operands, stream) for every attention.
  template <class Fn>
  void for_attention(Fn fn) const {
    for (std::uint32_t r = 0; r < programs_.size(); ++r)
      for (std::uint32_t op = 0; op < programs_[r].ops.size(); ++op)
        if (const auto* attention = std::get_if<Attention>(&programs_[r].work_of(op)))
          fn(*attention, ranks_[r]->operands_of(op), stream_of_op(r, op));
  }
  bool runs_by_cudnn(const Attention& attention, std::span<const exec::Operand> operands) const {
    return (attention.dropout == 0 || cudnn_dropout_) && attention_->has_plan(attention, operands);
  }

  // Returns whether collectives must reach the arena without copies.
  bool registers() const { return options_.nccl_ub && options_.processes && schedule_.mesh.ranks() > 1; }
  std::span<std::byte> registered_memory() const {
    if (!registers()) return {};
    const Rank& rank = *ranks_.front();
    return {rank.data(), static_cast<std::size_t>(std::max<std::int64_t>(rank.plan().bytes, 1))};
  }

  static int priority_of(const Lane& lane) {
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities");
    return std::clamp(lane.priority, highest, lowest);
  }

  std::uint32_t stream_of_op(std::uint32_t rank, std::uint32_t op) const {
    return rank * static_cast<std::uint32_t>(schedule_.lanes.size()) + programs_[rank].ops[op].lane;
  }
  Stream stream_of(std::uint32_t stream) const {
    return {streams_[stream]->stream, workspaces_[stream]->data, static_cast<std::size_t>(scratch_bytes_[stream]),
            device_.sms};
  }

  void add_note(const std::string& note) {
    if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
  }

  // Tunes on memory that holds no values yet.
  void tune_gemms() {
    for (std::size_t r = 0; r < programs_.size(); ++r)
      for (std::size_t op = 0; op < programs_[r].ops.size(); ++op) {
        const BoundOp& bound = programs_[r].ops[op];
        const auto* gemm = std::get_if<Gemm>(&schedule_.operations[bound.op].work);
        if (gemm == nullptr) continue;
        for (const exec::Operand& operand : ranks_[r]->operands_of(static_cast<std::uint32_t>(op)))
          if (operand.rows > 1 && operand.ld * bytes_of(operand.dtype) % 16 != 0)
            add_note(
                fmt::format("{}: rows of {} elements are no multiple of 16 bytes, which cuBLAS's fast kernels need{}",
                            describe(Work(*gemm)), operand.ld,
                            operand.ld % 2 != 0 ? "; make_vocab_size_divisible_by = 128 pads a vocabulary" : ""));
        const bool is_one_kernel =
            gemms_->tune(*gemm, ranks_[r]->operands_of(static_cast<std::uint32_t>(op)),
                         stream_of(stream_of_op(static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(op))));
        if (!is_one_kernel)
          add_note(describe(Work(*gemm)) +
                   ": cuBLAS has no such epilogue or is slower with it, a kernel of our own follows");
      }
    gemms_->save();
    for (const std::string& note : gemms_->notes()) add_note(note);
  }

  // Clears memory and waits, which cudaMemset alone does not.
  void clear(int byte) {
    for (const auto& rank : ranks_) rank->clear(byte);
    check(cudaDeviceSynchronize(), "clearing memory");
  }

  // Starts everything once before a rank communicates, because CUDA loads a kernel's code when the kernel is first
  // started, and may wait for all running work. If a kernel of NCCL waited for a rank that is loading, and the load
  // waited for this kernel, neither would end. The memory holds zeros, which are valid tokens and targets.
  void load_kernels() {
    clear(0);
    std::set<OpId> loaded;
    for (std::uint32_t r = 0; r < programs_.size(); ++r)
      for (std::uint32_t op = 0; op < programs_[r].ops.size(); ++op) {
        const OpId id = programs_[r].ops[op].op;
        const Work& work = programs_[r].work_of(op);
        if (is_communication(work) || !loaded.insert(id).second) continue;
        const Stream stream = stream_of(stream_of_op(r, op));
        if (const auto* grouped = std::get_if<GroupedGemm>(&work); grouped && !runs_at_once(*grouped))
          load_product_groups(*gemms_, *grouped, ranks_[r]->operands_of(op), stream);
        else
          compute(r, op);
      }
    wait_for_streams();
    // Tokens that all go to one expert find no room there.
    std::fill_n(faults_->data, programs_.size() * sizeof(Fault), std::byte{0});
  }

  void act(const LaunchAction& action, bool is_timed) {
    const cudaStream_t stream = streams_[action.stream]->stream;
    // Events of this step and the previous one alternate.
    const auto event_of = [&](bool of_step_before) {
      return events_[2 * action.event + static_cast<std::uint32_t>((step_ + of_step_before) % 2)]->event;
    };
    switch (action.kind) {
      case LaunchAction::Kind::wait:
        return check(cudaStreamWaitEvent(stream, event_of(action.of_step_before), 0), "waiting for an event");
      case LaunchAction::Kind::record:
        return check(cudaEventRecord(event_of(false), stream), "recording an event");
      case LaunchAction::Kind::copy:
        return counts_->copy(
            ranks_[action.rank]->operands_of(action.op)[*made_counts_of(work_of(action.rank, action.op))],
            stream_of(action.stream));
      case LaunchAction::Kind::host_wait:
        return await(action, event_of(false));
      case LaunchAction::Kind::begin:
        if (is_timed) record_time(times_->mark(action.rank, action.op, StepTimes::ready), stream);
        return;
      case LaunchAction::Kind::end:
        if (is_timed) record_time(times_->mark(action.rank, action.op, StepTimes::done), stream);
        return;
      case LaunchAction::Kind::launch:
        // Compute counts as begun when its waits are over: one event less between kernels.
        if (is_timed && action.phase == 0 && is_communication(work_of(action.rank, action.op)))
          for (std::uint32_t i = 0; i < action.joined; ++i)
            record_time(times_->mark(action.rank, joined(action, i), StepTimes::moving), stream);
        try {
          launch(action);
          if (is_timed && is_message_here(action))
            record_time(times_->mark(action.rank, action.op, StepTimes::moved), stream);
          return;
        } catch (const Error& error) {
          if (options_.processes)  // the operation is not the cause
            if (const auto elsewhere = options_.processes->failure()) throw runtime_failure(*elsewhere);
          throw runtime_failure(fmt::format("rank {}: {}: {}", programs_[action.rank].rank,
                                            label(schedule_, programs_[action.rank].ops[action.op]), error.what()));
        }
    }
  }

  // Returns whether the action moves a message on a device that ranks share. NCCL moves all messages of a group in one
  // launch.
  bool is_message_here(const LaunchAction& action) const {
    return action.kind == LaunchAction::Kind::launch && !options_.processes &&
           std::holds_alternative<PointToPoint>(work_of(action.rank, action.op));
  }

  const Work& work_of(std::uint32_t rank, std::uint32_t op) const { return programs_[rank].work_of(op); }

  std::uint32_t joined(const LaunchAction& action, std::uint32_t i) const {
    const BoundProgram& program = programs_[action.rank];
    const BoundOp& op = program.ops[action.op];
    return program.lanes[op.lane][op.position + i];
  }

  void launch(const LaunchAction& action) {
    if (is_communication(work_of(action.rank, action.op)))
      return communication_->launch(action, stream_of(action.stream));
    compute(action.rank, action.op);
  }

  void compute(std::uint32_t rank, std::uint32_t op) {
    const std::uint32_t on = stream_of_op(rank, op);
    Stream stream = stream_of(on);
    stream.fault = faults_of() + rank;
    stream.op = static_cast<std::int32_t>(op);
    const BoundProgram& program = programs_[rank];
    const Work& work = program.work_of(op);
    const std::span<const exec::Operand> operands = ranks_[rank]->operands_of(op);
    if (const auto* gemm = std::get_if<Gemm>(&work)) return gemms_->run(*gemm, operands, stream);
    if (const auto* grouped = std::get_if<GroupedGemm>(&work)) {
      if (runs_at_once(*grouped)) return grouped_gemms_->run(*grouped, operands, stream);
      const std::int32_t* offsets = grouped->equal ? nullptr : counts_->of(operands[*counts_of(work)]);
      return run_product_groups(*gemms_, *grouped, operands, offsets, stream);
    }
    if (const auto* attention = std::get_if<Attention>(&work); attention && runs_by_cudnn(*attention, operands))
      return attention_->run(*attention, operands, attention_workspaces_[on]->data, stream);
    launch_work(work, operands, stream);
  }

  // Waits for all work, at most for the timeout. Throws where a kernel has found data that it cannot work with.
  void finish() {
    wait_for_streams();
    require_no_fault();
  }

  void wait_for_streams() {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t s = 0; s < streams_.size(); ++s)
      wait_for(
          begin, [&] { return cudaStreamQuery(streams_[s]->stream); },
          [&] {
            return fmt::format("rank {}: lane {} has not finished its step", programs_[s / schedule_.lanes.size()].rank,
                               schedule_.lanes[s % schedule_.lanes.size()].name);
          });
  }

  // Waits for the numbers of rows that an operation needs. Kernels have seen them before the host.
  void await(const LaunchAction& action, cudaEvent_t event) {
    wait_for(
        std::chrono::steady_clock::now(), [&] { return cudaEventQuery(event); },
        [&] {
          return fmt::format("rank {}: {} has no numbers of experts' rows", programs_[action.rank].rank,
                             label(schedule_, programs_[action.rank].ops[action.op]));
        });
    require_no_fault();
  }

  // `what` says what has not come when the time is over.
  template <class Query, class What>
  void wait_for(std::chrono::steady_clock::time_point begin, Query query, What what) {
    while (true) {
      const cudaError_t error = query();
      if (error == cudaSuccess) return;
      if (error != cudaErrorNotReady) check(error, "running a step");
      cudaGetLastError();  // clears "not ready", which the next launch would report as its own error
      communication_->check();
      const double waited_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (waited_s > options_.timeout_s)
        throw runtime_failure(fmt::format("{} after {} s", what(), options_.timeout_s));
      if (waited_s > kSpin_s) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  Fault* faults_of() const { return reinterpret_cast<Fault*>(faults_->data); }
  void require_no_fault() const {
    for (std::size_t r = 0; r < programs_.size(); ++r) {
      const Fault& fault = faults_of()[r];
      if (fault.kind == Fault::Kind::none) continue;
      const auto op = static_cast<std::uint32_t>(fault.op);
      throw runtime_failure(fmt::format("rank {}: {}: {}", programs_[r].rank, label(schedule_, programs_[r].ops[op]),
                                        text_of(fault, programs_[r].work_of(op))));
    }
  }

  void transfer(Contents part, bool up) {
    for (const auto& rank : ranks_) rank->copy(part, up);
    // Copies from pageable memory may still be in flight, and streams do not wait for them.
    check(cudaDeviceSynchronize(), "copying between host and device");
  }

  const Schedule& schedule_;
  const MemoryPlan memory_plan_;
  CudaOptions options_;
  bool cudnn_dropout_;  // cuDNN runs attention with dropout, with its own masks
  GpuDevice device_;
  std::vector<OutsidePlan> outside_plan_;  // memory of the device outside the plans
  std::vector<BoundProgram> programs_;
  LaunchPlan launches_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<CudaStream>> streams_;
  std::vector<std::int64_t> scratch_bytes_;                // [stream]
  std::vector<std::unique_ptr<DeviceMemory>> workspaces_;  // [stream]
  std::vector<std::unique_ptr<CudaEvent>> events_;         // [2 · event + parity of the step]
  std::unique_ptr<StepTimes> times_;
  GemmRunner* gemms_ = nullptr;
  GroupedGemmRunner* grouped_gemms_ = nullptr;  // null without experts
  std::unique_ptr<PinnedMemory> faults_;        // [rank] Fault
  std::unique_ptr<HostCounts> counts_;
  AttentionRunner* attention_ = nullptr;                             // null without attention
  std::vector<std::unique_ptr<DeviceMemory>> attention_workspaces_;  // [stream]; null: cuDNN has no attention there
  std::unique_ptr<Communication> communication_;
  std::array<StepGraph, 2> graphs_;                // [timed]
  std::unique_ptr<CudaEvent> fork_;                // used in a capture
  std::vector<std::unique_ptr<CudaEvent>> joins_;  // [stream]
  bool is_capturing_ = false;
  bool is_idle_ = true;  // no work of the previous step is left, and its events may not exist
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
