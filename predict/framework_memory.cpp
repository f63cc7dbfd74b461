#include "predict/framework_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "model/schedule/bind.hpp"
#include "model/schedule/buffer_lives.hpp"
#include "model/schedule/work.hpp"
#include "predict/caching_allocator.hpp"

namespace stretto::predict {
namespace {

constexpr std::int64_t kLeastBlock = 64 * 1024;  // smaller tensors are not followed

// Points of time within an operation, which order the kernels of a loss.
using Moment = std::uint64_t;
constexpr Moment kMoments = 64;
Moment start_of(std::uint32_t op) { return op * kMoments + 1; }
Moment end_of(std::uint32_t op) { return op * kMoments + kMoments - 1; }

// A tensor of the framework, from its allocation until it is freed.
struct Block {
  std::int64_t bytes = 0;
  Moment from = 0, to = 0;
  std::size_t part = 0;
};

std::int64_t bytes_of(double elements, const Quantity& each) { return std::llround(elements * each.value); }

// Bytes of a micro-batch's keys and values beyond the schedule's when each query head has a copy: 2 (H - kv) d elements
// of a token, of two bytes each.
std::int64_t repeated_kv_bytes(const Schedule& schedule) {
  for (const Operation& operation : schedule.operations)
    if (const auto* attention = std::get_if<Attention>(&operation.work))
      return 2 * 2 * (attention->heads - attention->kv_heads) * attention->head_dim * attention->batch *
             attention->key_tokens();
  return 0;
}

class Role {
 public:
  Role(const Schedule& schedule, const RolePlan& plan, const BoundProgram& program, const FrameworkMemory& memory,
       double most_rows, bool weights_are_codes, std::span<const TensorRole> role_of)
      : schedule_(schedule),
        plan_(plan),
        memory_(memory),
        most_rows_(most_rows),
        weights_are_codes_(weights_are_codes),
        program_(program),
        role_of_(role_of) {
    for (const char* own : {"activations", "workspace"}) parts_.push_back({own, 0, "exact", ""});
  }

  MemoryUse run(std::int64_t limit_bytes) {
    add_persistent();
    find_lives();
    add_lives();
    add_transients();
    add_dummies();
    order_events();
    const std::int64_t peak = sum_up_parts();
    use_.held = std::max<std::int64_t>(0, reserved(limit_bytes) - peak);
    use_.state = sum(always_) + sum(late_);
    use_.activations += parts_[kActivations].bytes;
    use_.workspace += parts_[kWorkspace].bytes;
    for (std::size_t p = kOwnParts; p < parts_.size(); ++p)
      if (parts_[p].bytes != 0) use_.further.push_back(std::move(parts_[p]));
    return std::move(use_);
  }

 private:
  std::size_t part(const std::string& what, const Source& source) {
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (parts_[p].what == what) return p;
    parts_.push_back({what, 0, source.kind, source.origin});
    return parts_.size() - 1;
  }

  static std::int64_t sum(const std::vector<std::int64_t>& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }
  // Returns whether these are parameters that are gathered in fp8 and multiplied as codes: a framework that keeps
  // parameters in fp8 has no others.
  bool is_kept_in_codes(StorageId id) const {
    return is_low_ && std::any_of(schedule_.tensors.begin(), schedule_.tensors.end(), [&](const Tensor& tensor) {
             return tensor.role == TensorRole::fp8_gathered_parameters && tensor.places.front().storage == id;
           });
  }

  // Returns the elements of parameters in each storage that become codes before they are multiplied.
  std::map<StorageId, std::int64_t> elements_cast() const {
    std::map<std::pair<StorageId, std::int64_t>, std::int64_t> weights;  // by their places
    for (const BoundOp& op : program_.ops) {
      if (!std::holds_alternative<Quantise>(schedule_.operations[op.op].work)) continue;
      const BoundView weight = resolve(schedule_, program_, op, 0);
      if (schedule_.storages[weight.storage].kind == BufferKind::parameter)
        weights[{weight.storage, weight.offset}] = weight.rows * weight.cols;
    }
    std::map<StorageId, std::int64_t> elements;
    for (const auto& [place, count] : weights) elements[place.first] += count;
    return elements;
  }

  static Source of_each(const Quantity& bytes) {
    Source source = bytes.source;
    source.origin = fmt::format("{:g} bytes an element: {}", bytes.value, source.origin);
    return source;
  }
  static std::size_t own_part(BufferKind kind) { return kind == BufferKind::activation ? kActivations : kWorkspace; }

  void keep(std::int64_t bytes, bool is_late) {
    if (bytes > 0) (is_late ? late_ : always_).push_back(bytes);
  }

  void add_persistent() {
    const std::map<StorageId, std::int64_t> cast =
        weights_are_codes_ ? elements_cast() : std::map<StorageId, std::int64_t>{};
    for (StorageId id = 0; id < schedule_.storages.size(); ++id) {
      const Storage& storage = schedule_.storages[id];
      if (!plan_.has(id)) continue;
      const bool comes_and_goes = storage.kind == BufferKind::activation || storage.kind == BufferKind::workspace;
      if (comes_and_goes) continue;
      std::int64_t bytes = storage.bytes();
      if (storage.kind == BufferKind::gradient && memory_.gradient) {
        bytes = bytes_of(double(storage.elements), *memory_.gradient);
        use_.sources["gradients"] = of_each(*memory_.gradient);
      }
      if (memory_.master && role_of_[id] == TensorRole::master_parameters) {
        bytes = bytes_of(double(storage.elements), *memory_.master);
        use_.sources["optimizer state"] = of_each(*memory_.master);
      }
      if (storage.kind == BufferKind::parameter && is_kept_in_codes(id)) {
        bytes = 0;
        use_.sources["parameters"] = {"published",
                                      "codes alone, TransformerEngine: fp8_model_init, which --fp8-param-gather has"};
      }
      if (const auto found = cast.find(id); found != cast.end() && bytes > 0) {
        bytes -= found->second * bytes_of(storage.dtype);
        use_.sources["parameters"] = {"published",
                                      "codes alone: of a frozen base, which is cast once, or with Megatron-LM's "
                                      "--reuse-grad-buf-for-mxfp8-param-ag"};
      }
      if (memory_.casts_to_gather && role_of_[id] == TensorRole::parameter_shard) {
        bytes = 0;
        use_.sources["parameters"] = {"published",
                                      "torch/distributed/fsdp: shards are the f32 masters, which are cast "
                                      "to gather them"};
      }
      part_of(use_, storage.kind) += bytes;
      keep(bytes, storage.kind == BufferKind::optimizer_state);
    }
  }

  void add(std::int64_t bytes, Moment from, Moment to, std::size_t part) {
    if (bytes >= kLeastBlock) blocks_.push_back({bytes, from, to, part});
  }

  // The schedule's lives. A framework keeps what a layer's recomputation would write again where only one layer writes.
  void find_lives() {
    const std::vector<BufferLife> all = buffer_lives(schedule_, program_);
    struct Written {
      std::int32_t layer = -1;
      bool by_several_layers = false;
      std::size_t latest = 0;  // 1 + index of its latest life; 0: none yet
    };
    std::vector<Written> written(schedule_.storages.size());
    for (const BufferLife& life : all) {
      Written& of = written[life.storage];
      const std::int32_t layer = program_.ops[life.first].layer;
      of.by_several_layers = of.by_several_layers || (of.layer >= 0 && of.layer != layer);
      of.layer = layer;
    }
    lives_.reserve(all.size());
    for (const BufferLife& life : all) {
      Written& of = written[life.storage];
      if (of.latest > 0 && !of.by_several_layers &&
          program_.ops[life.first].micro_batch == program_.ops[lives_[of.latest - 1].first].micro_batch) {
        lives_[of.latest - 1].last = life.last;
        continue;
      }
      lives_.push_back(life);
      of.latest = lives_.size();
    }
  }

  // Repeated keys and values are made again where the norm before them is.
  void add_repeated_kv() {
    const std::int64_t bytes = repeated_kv_bytes(schedule_);
    if (bytes == 0) return;
    const std::size_t repeated = part("keys and values repeated for every query head",
                                      {"published", "repeat_kv of the model: attention saves its operands"});
    for (const BufferLife& life : lives_)
      if (role_of_[life.storage] == TensorRole::attention_norm_out)
        add(bytes, start_of(life.first), end_of(life.last), repeated);
  }

  // The treatment of a storage's lives, which is equal for all of them.
  struct Treatment {
    enum class Kind : std::uint8_t { unknown, left_out, root_unit, loss, plain } kind = Kind::unknown;
    std::int64_t bytes = 0;
    bool keeps_more = false;  // a further tensor is saved with it
    std::int64_t kept_bytes = 0;
    std::size_t kept_part = 0;
  };
  Treatment treatment_of(StorageId id) {
    using Kind = Treatment::Kind;
    const Storage& storage = schedule_.storages[id];
    const TensorRole role = role_of_[id];
    if (role == TensorRole::gradients_to_reduce) return {.kind = Kind::left_out};  // frameworks do not make the copy
    if (role == TensorRole::root_unit_parameters && memory_.root_unit_stays) return {.kind = Kind::root_unit};
    if (role == TensorRole::logits && !memory_.cross_entropy.empty()) return {.kind = Kind::loss};
    Treatment of{.kind = Kind::plain};
    // A framework allocates the rows that come, where the schedule leaves room for more.
    const std::int64_t rows = std::llround(double(storage.filled_bytes()) * most_rows_);
    of.bytes = storage.filled > 0 ? std::min(storage.bytes(), rows) : storage.bytes();
    if (const auto kept = memory_.kept.find(role); kept != memory_.kept.end()) {
      of.keeps_more = true;
      of.kept_bytes = bytes_of(double(of.bytes) / double(stretto::bytes_of(storage.dtype)), kept->second);
      of.kept_part = part(std::string("saved with ") + name_of(role), kept->second.source);
    }
    return of;
  }

  void add_lives() {
    std::map<StorageId, BufferLife> root;
    std::vector<Treatment> treatments(schedule_.storages.size());
    blocks_.reserve(2 * lives_.size());
    for (const BufferLife& life : lives_) {
      Treatment& of = treatments[life.storage];
      if (of.kind == Treatment::Kind::unknown) of = treatment_of(life.storage);
      switch (of.kind) {
        case Treatment::Kind::unknown:
        case Treatment::Kind::left_out:
          break;
        case Treatment::Kind::root_unit: {
          const auto [found, is_new] = root.try_emplace(life.storage, life);
          if (!is_new) found->second.last = life.last;
          break;
        }
        case Treatment::Kind::loss:
          add_loss(life);
          break;
        case Treatment::Kind::plain:
          add(of.bytes, start_of(life.first), end_of(life.last), own_part(schedule_.storages[life.storage].kind));
          if (!of.keeps_more) break;
          add(of.kept_bytes, start_of(life.first), end_of(life.last), of.kept_part);
          if (of.kept_bytes < 0) make_smaller(of.kept_bytes, life);
      }
    }
    if (memory_.repeats_kv_heads) add_repeated_kv();
    std::int64_t gathered = 0;
    for (const auto& [id, life] : root) {
      add(schedule_.storages[id].bytes(), start_of(life.first), end_of(life.last),
          own_part(schedule_.storages[id].kind));
      gathered += schedule_.storages[id].bytes();
    }
    if (!memory_.copies_out_of_gathers) return;
    for (StorageId id = 0; id < schedule_.storages.size(); ++id)
      if (plan_.has(id) &&
          (role_of_[id] == TensorRole::unit_parameters || role_of_[id] == TensorRole::root_unit_parameters))
        gathered = std::max(gathered, schedule_.storages[id].bytes());
    if (gathered == 0) return;
    parts_[part("what is gathered, before it is copied out",
                {"published", "torch/distributed/fsdp of 2.6, foreach_all_gather: one buffer of the largest unit"})]
        .bytes += gathered;
    other_pools_ += gathered;
  }

  // Makes the latest block smaller: the framework keeps less of it than the schedule.
  void make_smaller(std::int64_t bytes, const BufferLife& life) {
    if (blocks_.empty()) return;  // the block was too small to be followed
    Block& block = blocks_.back();
    if (block.from == start_of(life.first) && block.part < kOwnParts && block.bytes + bytes >= 0) block.bytes += bytes;
  }

  // Adds the logits, and the other tensors of the loss's kernels.
  void add_loss(const BufferLife& life) {
    const double logits = double(schedule_.storages[life.storage].elements);
    std::uint32_t loss = life.first;
    while (loss < life.last && !is_loss_of(loss, life.storage)) ++loss;
    const std::size_t of_loss = part("logits and their loss", memory_.cross_entropy_source);
    // (bytes of a logit, begin of its life)
    std::vector<std::pair<std::int64_t, Moment>> live = {{2, start_of(life.first)}};
    Moment at = start_of(loss);
    const auto close = [&](const std::pair<std::int64_t, Moment>& block, Moment to) {
      add(std::llround(logits * double(block.first)), block.second, to, of_loss);
    };
    for (const std::int64_t step : memory_.cross_entropy) {
      ++at;
      if (step > 0) {
        live.push_back({step, at});
        continue;
      }
      const auto freed =
          std::find_if(live.begin(), live.end(), [&](const auto& block) { return block.first == -step; });
      close(*freed, at);
      live.erase(freed);
    }
    for (const auto& block : live) close(block, end_of(life.last));
  }

  bool is_loss_of(std::uint32_t op, StorageId logits) const {
    if (!std::holds_alternative<CrossEntropy>(program_.work_of(op))) return false;
    const std::size_t accesses = schedule_.operations[program_.ops[op].op].accesses.size();
    for (std::size_t a = 0; a < accesses; ++a)
      if (resolve(schedule_, program_, program_.ops[op], a).storage == logits) return true;
    return false;
  }

  void add_transients() {
    if (memory_.during.empty()) return;
    struct Transient {
      bool is_known = false;
      const std::pair<const std::string, Quantity>* kind = nullptr;  // nullptr: its kind has none
      std::int64_t bytes = 0;
    };
    std::vector<Transient> transients(schedule_.operations.size());
    for (std::uint32_t op = 0; op < program_.ops.size(); ++op) {
      const OpId id = program_.ops[op].op;
      Transient& of = transients[id];
      if (!of.is_known) {
        of.is_known = true;
        const auto kind = memory_.during.find(kind_of(program_.works[id]));
        if (kind == memory_.during.end()) continue;
        of.kind = &*kind;
        double elements = 0;  // elements of the largest operand that is not only read
        for (const Access& access : schedule_.operations[id].accesses)
          if (access.mode != AccessMode::read)
            elements = std::max(elements, double(access.view.rows) * double(access.view.cols));
        of.bytes = bytes_of(elements, kind->second);
      }
      if (of.kind != nullptr)
        add(of.bytes, start_of(op), end_of(op), part("while " + of.kind->first + " runs", of.kind->second.source));
    }
  }

  // Adds a tensor for each shape of a weight whose gradient is added to another.
  void add_dummies() {
    if (!memory_.has_dummy_weight_gradients) return;
    std::set<std::pair<std::int64_t, std::int64_t>> shapes;
    std::vector<bool> is_issued(schedule_.operations.size());
    for (const BoundOp& op : program_.ops) is_issued[op.op] = true;
    for (OpId id = 0; id < is_issued.size(); ++id) {
      const Operation& operation = schedule_.operations[id];
      const auto* gemm = std::get_if<Gemm>(&operation.work);
      if (!is_issued[id] || gemm == nullptr || operation.phase != Phase::wgrad) continue;
      if (memory_.has_dummy_head_gradient || operation.module != Module::head) shapes.insert({gemm->m, gemm->n});
    }
    for (const auto& [rows, cols] : shapes) {
      const std::int64_t bytes = 2 * rows * cols;
      parts_[part("gradients of weights that nobody reads",
                  {"published", "TransformerEngine, module/base.py: get_dummy_wgrad, one of each shape in bf16"})]
          .bytes += bytes;
      keep(bytes, true);
    }
  }

  struct Event {
    Moment at = 0;
    bool is_free = false;
    std::size_t block = 0;
    bool operator<(const Event& other) const {
      return std::tie(at, other.is_free, block) < std::tie(other.at, is_free, other.block);  // frees come first
    }
  };
  // Sorts the events of all blocks: by operations, then those of each.
  void order_events() {
    std::vector<std::size_t> end(program_.ops.size() + 1);  // [operation] end of its events
    for (const Block& block : blocks_) ++end[block.from / kMoments], ++end[block.to / kMoments];
    std::size_t sum = 0;
    for (std::size_t& of : end) sum += std::exchange(of, sum);
    events_.resize(sum);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      events_[end[blocks_[b].from / kMoments]++] = {blocks_[b].from, false, b};
      events_[end[blocks_[b].to / kMoments]++] = {blocks_[b].to, true, b};
    }
    std::size_t begin = 0;
    for (const std::size_t of : end) {
      std::sort(events_.begin() + static_cast<std::ptrdiff_t>(begin),
                events_.begin() + static_cast<std::ptrdiff_t>(of));
      begin = of;
    }
  }

  // Assigns the tensors that are allocated at the peak to their causes. Returns the sum without other pools.
  std::int64_t sum_up_parts() {
    std::vector<std::int64_t> live(parts_.size(), 0), most;
    std::int64_t now = 0, peak = -1;
    for (const Event& event : events_) {
      const Block& block = blocks_[event.block];
      const std::int64_t by = event.is_free ? -block.bytes : block.bytes;
      live[block.part] += by;
      if ((now += by) > peak) {
        peak = now;
        most = live;
      }
    }
    const std::int64_t always = sum(always_) + sum(late_);
    if (most.empty()) return always;
    for (std::size_t p = 0; p < parts_.size(); ++p) parts_[p].bytes += most[p];
    return always + peak;
  }

  // Returns the reserved bytes of the pool of the tensors. The optimizer's state appears at the end of the first step.
  std::int64_t reserved(std::int64_t limit_bytes) const {
    for (const std::int64_t limit : {limit_bytes - other_pools_, std::int64_t{0}}) {
      if (limit_bytes <= 0 && limit != 0) continue;
      CachingAllocator allocator(memory_.expandable_segments, limit);
      for (const std::int64_t bytes : always_) allocator.allocate(bytes);
      std::vector<CachingAllocator::Handle> handles(blocks_.size());
      for (int step = 0; step < 2 && !allocator.is_out_of_memory(); ++step) {
        for (const Event& event : events_)
          if (event.is_free)
            allocator.free(handles[event.block]);
          else
            handles[event.block] = allocator.allocate(blocks_[event.block].bytes);
        if (step == 0)
          for (const std::int64_t bytes : late_) allocator.allocate(bytes);
      }
      if (!allocator.is_out_of_memory()) return allocator.peak_reserved_bytes();
    }
    return 0;
  }

  const Schedule& schedule_;
  const RolePlan& plan_;
  const FrameworkMemory& memory_;
  const double most_rows_;
  const bool weights_are_codes_;
  const bool is_low_ = std::any_of(schedule_.operations.begin(), schedule_.operations.end(),
                                   [](const Operation& operation) { return is_of_low_precision(operation.work); });
  const BoundProgram& program_;
  std::span<const TensorRole> role_of_;  // [storage]
  MemoryUse use_;
  static constexpr std::size_t kActivations = 0, kWorkspace = 1, kOwnParts = 2;
  std::vector<OutsidePlan> parts_;  // the first kOwnParts: the schedule's own tensors
  std::vector<BufferLife> lives_;
  std::vector<Block> blocks_;
  std::vector<Event> events_;  // of `blocks_`, in order
  // bytes of each, present from the beginning, and from the end of the first step on
  std::vector<std::int64_t> always_, late_;
  std::int64_t other_pools_ = 0;
};

}  // namespace

std::vector<TensorRole> roles_of_storages(const Schedule& schedule) {
  std::vector<TensorRole> result(schedule.storages.size(), TensorRole::none);
  std::vector<bool> is_known(schedule.storages.size());
  for (const Tensor& tensor : schedule.tensors)
    for (const TensorPlace& place : tensor.places) {
      if (!is_known[place.storage]) result[place.storage] = tensor.role;
      is_known[place.storage] = true;
    }
  return result;
}

MemoryUse role_memory(const Schedule& schedule, const RolePlan& plan, const BoundProgram& program,
                      const FrameworkMemory& memory, std::int64_t limit_bytes, double most_rows, bool weights_are_codes,
                      std::span<const TensorRole> role_of) {
  return Role(schedule, plan, program, memory, most_rows, weights_are_codes, role_of).run(limit_bytes);
}

}  // namespace stretto::predict
