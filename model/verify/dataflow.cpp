#include "model/verify/dataflow.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/overloaded.hpp"
#include "base/rng.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/happens_before.hpp"
#include "model/schedule/parcel.hpp"
#include "model/verify/symbolic.hpp"

namespace stretto {
namespace {

template <class... Values>
std::uint64_t hash_of(Values... values) {
  std::uint64_t hash = sizeof...(values);
  ((hash = mix(hash, static_cast<std::uint64_t>(values))), ...);
  return hash;
}

// Hashes all that decides how an operation whose results depend on all operands computes them.
std::uint64_t hash_of_work(const Work& work) {
  std::uint64_t hash = work.index();
  const auto add = [&](std::uint64_t value) { hash = mix(hash, value); };
  const auto add_field = Overloaded{
      [&](const char*, const Expr& field) { add(static_cast<std::uint64_t>(field.value())); },
      [&](const char*, double field) { add(std::bit_cast<std::uint64_t>(field)); },
      [&](const char*, const std::vector<AdamW::Range>& field) {
        for (const AdamW::Range& range : field)
          add(static_cast<std::uint64_t>(range.begin)), add(static_cast<std::uint64_t>(range.end));
      },
      [&](const char*, const SequenceParts& field) {
        add(static_cast<std::uint64_t>(field.of));
        add(static_cast<std::uint64_t>(field.first.value()));
        add(static_cast<std::uint64_t>(field.count));
      },
      [&](const char*, auto field) {
        if constexpr (std::is_class_v<decltype(field)>)  // a scaling of rotary positions
          for_each_field(
              field, [&](const char*, auto value) { add(std::bit_cast<std::uint64_t>(static_cast<double>(value))); });
        else
          add(static_cast<std::uint64_t>(field));
      }};
  std::visit([&](const auto& kind) { for_each_field(kind, add_field); }, work);
  return hash;
}

// Combines the slices that members give to a collective.
Runs reduced(Reduction reduction, std::span<const Runs> slices) {
  const Runs sum = sum_elements(slices);
  return reduction == Reduction::sum ? sum : map_elements(hash_of(reduction), {&sum, 1});
}

struct RankState {
  BoundProgram program;
  std::vector<Runs> memory;  // [storage]
};

class Tracer {
 public:
  Tracer(const Schedule& schedule, SumOrder order) : schedule_(schedule), order_(order) {
    for (const Storage& storage : schedule.storages)
      start_.push_back({{storage.elements, is_persistent(storage.kind) ? 0 : stream_of("not written"), Run::kUniform}});
  }

  DataFlow run() {
    const BoundStep step = bind_step(schedule_, Folding(schedule_.mesh));
    const IssueOrder& issued = step.issued;
    for (std::int64_t r = 0; r < schedule_.mesh.ranks(); ++r) {
      ranks_.push_back({step.programs[static_cast<std::size_t>(r)], start_});
      for (const StatePiece& piece : schedule_.state.pieces)
        for (const StatePart part : {StatePart::parameters, StatePart::master})
          for (const StateRun& run : runs_of(schedule_, piece, part, r, Share::held))
            overwrite(ranks_.back().memory[run.storage], run.offset,
                      {{run.elements, hash_of(stream_of(schedule_.state.full_name(piece)), part), run.begin}});
    }
    // In a schedule without races every legal order computes equal values; this is one legal order.
    const HappensBefore clocks = require_order(schedule_, step.programs, issued);

    std::vector<std::vector<UnrolledOp>> order(ranks_.size());
    for (std::size_t p = 0; p < ranks_.size(); ++p)
      for (const UnrolledRange& run : clocks.order[p])
        for (std::uint32_t i = 0; i < run.count; ++i) order[p].push_back({run.first.op + i, run.first.step});
    std::vector<std::size_t> next(ranks_.size(), 0);
    for (const ProgramRange& turn : clocks.interleaving)
      for (std::uint32_t i = 0; i < turn.count; ++i)
        execute(issued, turn.program, order[turn.program][next[turn.program]++]);
    return results();
  }

 private:
  void execute(const IssueOrder& issued, std::uint32_t p, UnrolledOp at) {
    const RendezvousSlot slot = issued.slots[p][at.op];
    // A joint operation of several ranks happens when the first of them finishes: all have started by then.
    switch (slot.kind) {
      case RendezvousSlot::Kind::none:
        compute(p, at);
        break;
      case RendezvousSlot::Kind::collective:
        if (done_collectives_.emplace(slot.group, at.step, slot.index).second)
          communicate(issued.groups[slot.group], slot.index, at.step);
        break;
      case RendezvousSlot::Kind::send:
      case RendezvousSlot::Kind::receive:
        if (done_messages_.emplace(slot.group, at.step, slot.index).second) {
          const MessagePair& pair = issued.pairs[slot.group];
          write(pair.to, {pair.receives[slot.index], at.step}, 0,
                read(pair.from, {pair.sends[slot.index], at.step}, 0));
        }
        break;
    }
  }

  Runs read(std::size_t p, UnrolledOp at, std::size_t access) const {
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

  void write(std::size_t p, UnrolledOp at, std::size_t access, const Runs& value) {
    const BoundProgram& program = ranks_[p].program;
    const BoundView view = resolve(schedule_, program, program.ops[at.op], access);
    for (std::int64_t row = 0; row < view.rows; ++row)
      overwrite(ranks_[p].memory[view.storage], view.offset + row * view.ld, slice(value, row * view.cols, view.cols));
  }

  // The number of elements is left out of the hash of element-wise operations.
  void compute(std::size_t p, UnrolledOp at) {
    const BoundProgram& program = ranks_[p].program;
    const OpId id = program.ops[at.op].op;
    const Operation& operation = schedule_.operations[id];
    const Work& work = program.works[id];
    if (const auto* fill = std::get_if<Fill>(&work)) {
      const auto value = std::bit_cast<std::uint64_t>(fill->value);
      write(p, at, 0, {{fill->elements, fill->value == 0 ? 0 : hash_of(work.index(), value), Run::kUniform}});
    } else if (const auto* reduce = std::get_if<LocalReduce>(&work)) {
      const Runs parts = read(p, at, 0);
      std::vector<Runs> rows;
      for (std::int64_t i = 0; i < reduce->parts; ++i)
        rows.push_back(slice(parts, i * reduce->elements, reduce->elements));
      write(p, at, 1, sum_elements(rows));
    } else if (const auto* scaled = std::get_if<ScaledCast>(&work)) {
      scaled_cast(p, at, *scaled);
    } else if (std::holds_alternative<Cast>(work)) {
      write(p, at, 1, cast(read(p, at, 0), dtype_of(operation.accesses[0]), dtype_of(operation.accesses[1])));
    } else if (const auto* squares = std::get_if<SumSquares>(&work)) {
      const Runs x = read(p, at, 0);
      Runs sum = read(p, at, 1);
      const std::uint64_t share = hash_of(squares->copies) | 1;
      for (Run& run : sum)
        run.hash = order_ == SumOrder::any ? run.hash + share * sum_over(x) : mix(run.hash, share * fingerprint(x));
      write(p, at, 1, sum);
    } else if (const auto* adamw = std::get_if<AdamW>(&work)) {
      update(p, at, *adamw);
    } else {
      transform(p, at, operation, work);
    }
  }

  Dtype dtype_of(const Access& access) const { return schedule_.dtype_of(access.view); }

  static Runs cast(Runs value, Dtype from, Dtype to) {
    for (Run& run : value)  // zero is zero in every type
      if (run.hash != 0 && from != to) run.hash = hash_of(stream_of("cast"), to, run.hash);
    return value;
  }

  // A scale depends on its whole block, a value on its element and the scale.
  void scaled_cast(std::size_t p, UnrolledOp at, const ScaledCast& work) {
    const Runs given = read(p, at, 0);
    const std::int64_t blocks = work.elements / kScaleBlock;
    const bool packs = work.pass == Pass::forward;
    Runs got;
    for (std::int64_t shard = 0; shard < work.shards; ++shard) {
      const std::int64_t begin = shard * (packs ? work.elements : work.packed());
      Runs scales;
      for (std::int64_t block = 0; block < blocks; ++block) {
        const Runs values = slice(given, begin + block * kScaleBlock, kScaleBlock);
        const std::uint64_t scale = fingerprint(packs ? values : slice(given, begin + work.elements + block, 1));
        for (Run value : values) {
          value.hash = hash_of(stream_of("scaled"), packs, value.hash, scale);
          append(got, value);
        }
        append(scales, {1, scale, Run::kUniform});
      }
      if (packs) append(got, scales);
    }
    write(p, at, 1, got);
  }

  // Computes an operation in which every result depends on all of every operand.
  void transform(std::size_t p, UnrolledOp at, const Operation& operation, const Work& work) {
    std::uint64_t inputs = hash_of_work(work);
    for (std::size_t a = 0; a < operation.accesses.size(); ++a) {
      inputs = hash_of(inputs, operation.accesses[a].mode);
      if (operation.accesses[a].mode != AccessMode::write) inputs = mix(inputs, fingerprint(read(p, at, a)));
    }
    for (std::size_t a = 0; a < operation.accesses.size(); ++a) {
      const View& view = operation.accesses[a].view;
      if (operation.accesses[a].mode != AccessMode::read) write(p, at, a, {{view.rows * view.cols, mix(inputs, a), 0}});
    }
  }

  // Updates element by element; some elements are decayed. Where there is a master, the master is updated and the
  // parameter is its rounded copy. Remainders stand for the master, which needs the parameter too.
  void update(std::size_t p, UnrolledOp at, const AdamW& adamw) {
    enum : std::size_t { grad, norm_squared, hyper, param, m, v, master };
    const std::size_t updated = adamw.master ? master : param;
    Runs decayed = {{adamw.elements * adamw.shards, 0, Run::kUniform}};
    for (const AdamW::Range& range : adamw.decayed)
      overwrite(decayed, range.begin, {{range.end - range.begin, 1, Run::kUniform}});
    Runs operands[] = {read(p, at, grad), read(p, at, updated), read(p, at, m), read(p, at, v),
                       slice(decayed, adamw.shard.value() * adamw.elements, adamw.elements)};
    if (adamw.remainders) {
      const Runs halves[] = {operands[1], read(p, at, param)};
      operands[1] = map_elements(stream_of("joined"), halves);
    }
    const std::uint64_t scalars = mix(fingerprint(read(p, at, norm_squared)), fingerprint(read(p, at, hyper)));
    for (const std::size_t result : {updated, std::size_t{m}, std::size_t{v}})
      write(p, at, result, map_elements(mix(scalars, result == master ? param : result), operands));
    if (adamw.master) {
      const std::vector<Access>& accesses = schedule_.operations[ranks_[p].program.ops[at.op].op].accesses;
      write(p, at, param, cast(read(p, at, master), dtype_of(accesses[master]), dtype_of(accesses[param])));
    }
  }

  void communicate(const CollectiveGroup& group, std::uint32_t index, std::uint32_t step) {
    const auto instance = [&](std::size_t m) { return UnrolledOp{group.sequence[m][index], step}; };
    const BoundProgram& first = ranks_[group.members[0]].program;
    const auto& work = std::get<Collective>(first.works[first.ops[instance(0).op].op]);
    const auto members = static_cast<std::int64_t>(group.members.size());
    const CollectiveRule rule = rule_of(work.kind);
    std::vector<Runs> given;
    for (std::size_t m = 0; m < group.members.size(); ++m) given.push_back(read(group.members[m], instance(m), 0));
    if (work.by_rows()) return exchange_rows(group, index, step, work, given);
    const std::int64_t elements = rule.gets_shard ? work.elements / members : work.elements;
    std::vector<Runs> got(given.size(), {{elements, 0, Run::kUniform}});
    for (int phase = 0; phase < rule.phases; ++phase) {
      const CollectivePhase& moves = rule.phase[static_cast<std::size_t>(phase)];
      for (std::size_t getter = 0; getter < got.size(); ++getter) {
        std::vector<Runs> slices;
        Parcel parcel;
        for (std::size_t giver = 0; giver < given.size(); ++giver) {
          parcel = parcel_of(rule, phase, work.elements, members, static_cast<std::int64_t>(giver),
                             static_cast<std::int64_t>(getter));
          slices.push_back(slice((moves.from_result ? got : given)[giver], parcel.source, parcel.elements));
          if (!moves.reduces) overwrite(got[getter], parcel.target, slices.back());
        }
        if (moves.reduces) overwrite(got[getter], parcel.target, reduced(work.reduction, slices));
      }
    }
    for (std::size_t m = 0; m < got.size(); ++m) write(group.members[m], instance(m), rule.one_buffer ? 0 : 1, got[m]);
  }

  // Data says which rows go where: every result depends on all that all members give.
  void exchange_rows(const CollectiveGroup& group, std::uint32_t index, std::uint32_t step, const Collective& work,
                     const std::vector<Runs>& given) {
    const auto instance = [&](std::size_t m) { return UnrolledOp{group.sequence[m][index], step}; };
    std::uint64_t all = hash_of_work(work);
    for (std::size_t m = 0; m < given.size(); ++m) {
      all = mix(all, fingerprint(given[m]));
      all = mix(all, fingerprint(read(group.members[m], instance(m), 1)));
    }
    const std::int64_t elements = work.kind == CollectiveKind::dispatch ? work.capacity : work.elements;
    for (std::size_t m = 0; m < given.size(); ++m)
      write(group.members[m], instance(m), 2, {{elements, mix(all, m), 0}});
  }

  // Returns every copy of a learnable array, with each element as the rank that updates it has it.
  std::vector<Runs> copies_of(std::span<const StatePiece> pieces) const {
    std::vector<std::pair<StateRun, std::size_t>> owned;  // and the owning rank
    for (const StatePiece& piece : pieces)
      for (std::size_t p = 0; p < ranks_.size(); ++p)
        for (const StateRun& run :
             runs_of(schedule_, piece, StatePart::parameters, static_cast<std::int64_t>(p), Share::owned))
          owned.emplace_back(run, p);
    std::stable_sort(owned.begin(), owned.end(),
                     [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
    std::vector<Runs> copies;
    std::vector<std::int64_t> ends;  // [copy]
    for (const auto& [run, p] : owned) {
      const std::int64_t begin = run.begin;
      const auto fits = std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) { return end <= begin; });
      const auto copy = static_cast<std::size_t>(fits - ends.begin());
      if (fits == ends.end()) {
        ends.push_back(0);
        copies.emplace_back();
      }
      ends[copy] = run.begin + run.elements;
      append(copies[copy], slice(ranks_[p].memory[run.storage], run.offset, run.elements));
    }
    return copies;
  }

  DataFlow results() const {
    DataFlow flow;
    const StateMap& state = schedule_.state;
    for (std::size_t first = 0; first < state.pieces.size(); first += state.copies(first).size()) {
      const std::vector<Runs> copies = copies_of(state.copies(first));
      for (std::size_t i = 0; i < copies.size(); ++i)
        flow.results[state.full_name(state.pieces[first]) + (i > 0 ? " copy " + std::to_string(i + 1) : "")] =
            fingerprint(copies[i]);
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
  std::vector<Runs> start_;  // [storage] contents before the first step, without parameters
  std::vector<RankState> ranks_;
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> done_collectives_,
      done_messages_;  // (group, step, index) of finished messages
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
