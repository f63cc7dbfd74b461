#include "model/schedule/dataflow.hpp"

#include <bit>
#include <set>
#include <string_view>
#include <tuple>

#include "base/error.hpp"
#include "base/overloaded.hpp"
#include "base/rng.hpp"
#include "model/schedule/happens_before.hpp"
#include "model/schedule/rendezvous.hpp"
#include "model/schedule/symbolic.hpp"

namespace stretto {
namespace {

template <class... Values>
std::uint64_t hash_of(Values... values) {
  std::uint64_t hash = sizeof...(values);
  ((hash = mix(hash, static_cast<std::uint64_t>(values))), ...);
  return hash;
}

// All that decides what an operation computes from its operands. Lengths of element-wise operations do not.
std::uint64_t hash_of_work(const Work& work) {
  const std::uint64_t fields = std::visit(
      Overloaded{
          [](const Gemm& g) {
            return hash_of(g.m, g.n, g.k, g.trans_a, g.trans_b, g.bias, static_cast<int>(g.epilogue));
          },
          [](const Attention& a) {
            return hash_of(a.pass, a.batch, a.heads, a.kv_heads, a.seq, a.head_dim, a.causal,
                           std::bit_cast<std::uint64_t>(a.dropout));
          },
          [](const Rope& r) {
            return hash_of(r.pass, r.rows, r.heads, r.kv_heads, r.seq, r.head_dim,
                           std::bit_cast<std::uint64_t>(r.base));
          },
          [](const LayerNorm& n) { return hash_of(n.pass, n.rows, n.cols); },
          [](const RmsNorm& n) { return hash_of(n.pass, n.rows, n.cols); },
          [](const Elementwise& e) { return hash_of(e.fn, e.rows, e.cols); },
          [](const Dropout& d) {
            return hash_of(d.pass, d.rows, d.cols, d.seq, std::bit_cast<std::uint64_t>(d.probability), d.site, d.bias,
                           d.residual, d.shards);
          },
          [](const Embedding& e) { return hash_of(e.pass, e.rows, e.cols, e.vocab, e.seq, e.positions, e.shards); },
          [](const CrossEntropy& c) {
            return hash_of(c.rows, c.cols, c.classes, c.shards, std::bit_cast<std::uint64_t>(c.scale));
          },
          [](const VocabStats& v) { return hash_of(v.rows, v.cols, v.classes); },
          [](const Fill& f) { return hash_of(std::bit_cast<std::uint64_t>(f.value)); },
          [](const auto&) { return std::uint64_t{0}; },
      },
      work);
  return hash_of(work.index(), fields);
}

struct RankState {
  BoundProgram program;
  std::vector<Runs> memory;  // [storage]
};

class Tracer {
 public:
  Tracer(const Schedule& schedule, SumOrder order) : schedule_(schedule), order_(order) {
    for (TensorId t = 0; t < schedule.tensors.size(); ++t) {
      const Tensor& tensor = schedule.tensors[t];
      const bool is_parameter = schedule.storages[tensor.places.front().storage].kind == BufferKind::parameter;
      if (is_parameter && schedule.find_tensor("grad." + tensor.name)) learnable_.push_back(t);
    }
    for (const Storage& storage : schedule.storages)
      start_.push_back({{storage.elements, is_persistent(storage.kind) ? 0 : stream_of("not written"), Run::kUniform}});
    std::vector<Runs> nobody(start_.size());
    for (std::size_t s = 0; s < start_.size(); ++s)
      append(nobody[s], {schedule.storages[s].elements, 0, Run::kUniform});
    owner_.assign(static_cast<std::size_t>(schedule.mesh.size(Coord::tp)), nobody);
    for (const TensorId t : learnable_)
      for (std::size_t i = 0; i < schedule.tensors[t].places.size(); ++i) {
        const TensorPlace& place = schedule.tensors[t].places[i];
        overwrite(start_[place.storage], place.offset,
                  {{schedule.tensors[t].elements(), stream_of(instance_name(t, i)), 0}});
      }
  }

  DataFlow run() {
    std::vector<BoundProgram> programs;
    for (std::int64_t r = 0; r < schedule_.mesh.ranks(); ++r) {
      programs.push_back(bind(schedule_, r));
      ranks_.push_back({programs.back(), start_});
    }
    const Rendezvous rendezvous = find_rendezvous(schedule_, programs);
    // In a schedule without races every legal order computes the same; this is one.
    const HappensBefore clocks = require_order(schedule_, programs, rendezvous);

    std::vector<std::vector<Instance>> order(ranks_.size());
    for (std::size_t p = 0; p < ranks_.size(); ++p)
      for (const Stretch& run : clocks.order[p])
        for (std::uint32_t i = 0; i < run.count; ++i) order[p].push_back({run.first.op + i, run.first.step});
    std::vector<std::size_t> next(ranks_.size(), 0);
    for (const Turn& turn : clocks.turns)
      for (std::uint32_t i = 0; i < turn.count; ++i)
        execute(rendezvous, turn.program, order[turn.program][next[turn.program]++]);
    return results();
  }

 private:
  void execute(const Rendezvous& rendezvous, std::uint32_t p, Instance at) {
    const MeetingSlot slot = rendezvous.slots[p][at.op];
    // What several ranks do together happens when the first of them finishes: all have started by then.
    switch (slot.kind) {
      case MeetingSlot::Kind::none:
        compute(p, at);
        break;
      case MeetingSlot::Kind::collective:
        if (done_collectives_.emplace(slot.group, at.step, slot.index).second)
          communicate(rendezvous.groups[slot.group], slot.index, at.step);
        break;
      case MeetingSlot::Kind::send:
      case MeetingSlot::Kind::receive:
        if (done_messages_.emplace(slot.group, at.step, slot.index).second) {
          const MessagePair& pair = rendezvous.pairs[slot.group];
          write(pair.to, {pair.receives[slot.index], at.step}, 0,
                read(pair.from, {pair.sends[slot.index], at.step}, 0));
        }
        break;
    }
  }

  std::string instance_name(TensorId t, std::size_t place) const {
    const Tensor& tensor = schedule_.tensors[t];
    const std::string layer = tensor.layers > 1 ? "h." + std::to_string(place / tensor.slots) + "." : "";
    return layer + tensor.name + (tensor.slots > 1 ? " slot " + std::to_string(place % tensor.slots) : "");
  }

  Runs read(std::size_t p, Instance at, std::size_t access) const {
    const BoundProgram& program = ranks_[p].program;
    const BoundView view = resolve(schedule_, program, program.ops[at.op], access);
    const Storage& storage = schedule_.storages[view.storage];
    Runs result;
    for (std::int64_t row = 0; row < view.rows; ++row) {
      const std::int64_t begin = view.offset + row * view.ld;
      if (storage.kind == BufferKind::input)  // written from outside before every step
        append(result,
               {view.cols, hash_of(stream_of(storage.name), at.step, storage.dtype == Dtype::i32 ? p : 0), begin});
      else
        append(result, slice(ranks_[p].memory[view.storage], begin, view.cols));
    }
    return result;
  }

  void write(std::size_t p, Instance at, std::size_t access, const Runs& value) {
    const BoundProgram& program = ranks_[p].program;
    const BoundView view = resolve(schedule_, program, program.ops[at.op], access);
    for (std::int64_t row = 0; row < view.rows; ++row)
      overwrite(ranks_[p].memory[view.storage], view.offset + row * view.ld, slice(value, row * view.cols, view.cols));
  }

  void compute(std::size_t p, Instance at) {
    const Operation& operation = schedule_.operations[ranks_[p].program.ops[at.op].op];
    if (const auto* fill = std::get_if<Fill>(&operation.work)) {
      write(p, at, 0, {{fill->elements, fill->value == 0 ? 0 : hash_of_work(operation.work), Run::kUniform}});
    } else if (const auto* reduce = std::get_if<LocalReduce>(&operation.work)) {
      const Runs parts = read(p, at, 0);
      std::vector<Runs> rows;
      for (std::int64_t i = 0; i < reduce->parts; ++i)
        rows.push_back(slice(parts, i * reduce->elements, reduce->elements));
      write(p, at, 1, sum_elements(rows));
    } else if (std::holds_alternative<Cast>(operation.work)) {
      Runs value = read(p, at, 0);
      const Tensor& to = schedule_.tensors[operation.accesses[1].view.tensor];
      const Dtype dtype = schedule_.storages[to.places.front().storage].dtype;
      const Tensor& from = schedule_.tensors[operation.accesses[0].view.tensor];
      const bool is_copy = schedule_.storages[from.places.front().storage].dtype == dtype;
      for (Run& run : value)  // zero is zero in every type
        if (run.hash != 0 && !is_copy) run.hash = hash_of(hash_of_work(operation.work), dtype, run.hash);
      write(p, at, 1, value);
    } else if (std::holds_alternative<SumSquares>(operation.work)) {
      const Runs x = read(p, at, 0);
      Runs sum = read(p, at, 1);
      for (Run& run : sum) run.hash = order_ == SumOrder::any ? run.hash + sum_over(x) : mix(run.hash, fingerprint(x));
      write(p, at, 1, sum);
    } else if (const auto* adamw = std::get_if<AdamW>(&operation.work)) {
      update(p, at, *adamw);
    } else {
      transform(p, at, operation);
    }
  }

  // Every result depends on all of every operand.
  void transform(std::size_t p, Instance at, const Operation& operation) {
    std::uint64_t inputs = hash_of_work(operation.work);
    for (std::size_t a = 0; a < operation.accesses.size(); ++a) {
      inputs = hash_of(inputs, operation.accesses[a].mode);
      if (operation.accesses[a].mode != AccessMode::write) inputs = mix(inputs, fingerprint(read(p, at, a)));
    }
    for (std::size_t a = 0; a < operation.accesses.size(); ++a) {
      const View& view = operation.accesses[a].view;
      if (operation.accesses[a].mode != AccessMode::read) write(p, at, a, {{view.rows * view.cols, mix(inputs, a), 0}});
    }
  }

  // grad, norm_squared, hyper, param, m, v: element by element, of which some are decayed.
  void update(std::size_t p, Instance at, const AdamW& adamw) {
    const std::int64_t shard = ranks_[p].program.coordinates[Coord::dp];
    Runs decayed = {{adamw.elements * adamw.shards, 0, Run::kUniform}};
    for (const AdamW::Range& range : adamw.decayed)
      overwrite(decayed, range.begin, {{range.end - range.begin, 1, Run::kUniform}});
    const Runs operands[] = {read(p, at, 0), read(p, at, 3), read(p, at, 4), read(p, at, 5),
                             slice(decayed, shard * adamw.elements, adamw.elements)};
    const std::uint64_t scalars = mix(fingerprint(read(p, at, 1)), fingerprint(read(p, at, 2)));
    for (const std::size_t result : {3, 4, 5}) write(p, at, result, map_elements(mix(scalars, result), operands));
    const BoundProgram& program = ranks_[p].program;
    const BoundView view = resolve(schedule_, program, program.ops[at.op], 3);
    overwrite(owner_[static_cast<std::size_t>(program.coordinates[Coord::tp])][view.storage], view.offset,
              {{adamw.elements, p, Run::kUniform}});
  }

  void communicate(const CollectiveGroup& group, std::uint32_t index, std::uint32_t step) {
    const auto instance = [&](std::size_t m) { return Instance{group.sequence[m][index], step}; };
    const BoundOp& op = ranks_[group.members[0]].program.ops[instance(0).op];
    const auto& work = std::get<Collective>(schedule_.operations[op.op].work);
    const std::int64_t shard = work.elements / static_cast<std::int64_t>(group.members.size());
    std::vector<Runs> operands;
    for (std::size_t m = 0; m < group.members.size(); ++m) operands.push_back(read(group.members[m], instance(m), 0));
    Runs whole;
    if (work.kind == CollectiveKind::all_gather)
      for (const Runs& operand : operands) append(whole, operand);
    else
      whole = sum_elements(operands);
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      if (work.kind == CollectiveKind::reduce_scatter)
        write(group.members[m], instance(m), 1, slice(whole, static_cast<std::int64_t>(m) * shard, shard));
      else
        write(group.members[m], instance(m), work.kind == CollectiveKind::all_gather ? 1 : 0, whole);
    }
  }

  DataFlow results() const {
    DataFlow flow;
    for (const TensorId t : learnable_) {
      const Tensor& tensor = schedule_.tensors[t];
      for (std::size_t i = 0; i < tensor.places.size(); ++i)
        for (std::size_t part = 0; part < owner_.size(); ++part) {
          const TensorPlace& place = tensor.places[i];
          Runs value;
          std::int64_t begin = place.offset;
          for (const Run& owned : slice(owner_[part][place.storage], place.offset, tensor.elements())) {
            append(value, slice(ranks_[owned.hash].memory[place.storage], begin, owned.length));
            begin += owned.length;
          }
          const std::string suffix = owner_.size() > 1 ? " of tp " + std::to_string(part) : "";
          flow.results[instance_name(t, i) + suffix] = fingerprint(value);
        }
    }
    for (StorageId s = 0; s < schedule_.storages.size(); ++s) {
      const Storage& storage = schedule_.storages[s];
      if (storage.kind != BufferKind::scalar && storage.kind != BufferKind::input) continue;
      for (std::size_t p = 0; p < ranks_.size(); ++p)
        flow.results[storage.name + " of rank " + std::to_string(p)] = fingerprint(ranks_[p].memory[s]);
    }
    return flow;
  }

  const Schedule& schedule_;
  SumOrder order_;
  std::vector<TensorId> learnable_;
  std::vector<Runs> start_;               // [storage]
  std::vector<std::vector<Runs>> owner_;  // [tp][storage]: which rank has updated what; the hash is its number
  std::vector<RankState> ranks_;
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> done_collectives_,
      done_messages_;  // group, step, index
};

}  // namespace

DataFlow trace_dataflow(const Schedule& schedule, SumOrder order) { return Tracer(schedule, order).run(); }

std::vector<std::string> differences(const DataFlow& expected, const DataFlow& actual) {
  std::vector<std::string> lines;
  for (const auto& [name, hash] : expected.results) {
    const auto found = actual.results.find(name);
    if (found == actual.results.end())
      lines.push_back(name + " is missing");
    else if (found->second != hash)
      lines.push_back(name + " is computed in another way");
  }
  for (const auto& [name, hash] : actual.results)
    if (!expected.results.contains(name)) lines.push_back(name + " is new");
  return lines;
}

std::vector<std::string> verify_equivalent(const Schedule& plain, const Schedule& rewritten, SumOrder order) {
  return differences(trace_dataflow(plain, order), trace_dataflow(rewritten, order));
}

}  // namespace stretto
