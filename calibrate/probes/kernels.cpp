#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "calibrate/notebook.hpp"
#include "calibrate/probes/gpu.hpp"
#include "exec/cuda/cuda.hpp"
#include "model/lower/builder.hpp"
#include "model/overlap/overlap.hpp"

namespace stretto::calibrate {
namespace {

// One rank, one lane, and one storage in each type for all that is read, one for all that is written and one for all
// that is added to: operands of one kind lie one after the other, and those of the next operation in the same place.
class KernelList {
 public:
  explicit KernelList(Dtype dtype) : dtype_(dtype) {
    schedule_.name = "probe_kernels";
    schedule_.compute_dtype = dtype;
    schedule_.mesh = Mesh({{Coord::dp, 1}});
    schedule_.lanes = {{"compute", LaneKind::compute, 0}};
    schedule_.programs = {{"rank", {}}};
  }

  // Returns a read operand in the compute type, or with `wide` in the type of sums.
  Access in(std::int64_t rows, std::int64_t cols, bool wide = false) {
    return read(place("in", BufferKind::parameter, type(wide), rows, cols));
  }
  Access out(std::int64_t rows, std::int64_t cols, bool wide = false) {
    return write(place("out", BufferKind::workspace, type(wide), rows, cols));
  }
  Access sum(std::int64_t rows, std::int64_t cols) {
    return accumulate(place("sum", BufferKind::workspace, accumulation_of(dtype_), rows, cols));
  }
  // Zeros.
  Access integers(std::int64_t rows, std::int64_t cols = 1) {
    return read(place("integers", BufferKind::input, Dtype::i32, rows, cols));
  }
  Access out_integers(std::int64_t rows, std::int64_t cols) {
    return write(place("out", BufferKind::workspace, Dtype::i32, rows, cols));
  }

  void add(const Work& work, std::vector<Access> accesses) {
    const std::string name = describe(work) + "." + std::to_string(schedule_.operations.size());
    const BlockId block = add_single(schedule_, {name, work, 0, Phase::forward, std::move(accesses)});
    schedule_.programs.front().order.push_back(call_block(schedule_, block));
    for (auto& [key, area] : areas_) area.used = 0;
  }

  // An operand that is added to is filled first.
  Schedule finished() {
    const auto area = areas_.find({"sum", accumulation_of(dtype_)});
    if (area != areas_.end()) {
      const StorageId storage = area->second.storage;
      const std::int64_t elements = schedule_.storages[storage].elements;
      const TensorId tensor = add_placed_tensor(schedule_, "sum.all", 1, elements, {{storage, 0}});
      const BlockId fill =
          add_single(schedule_, {"fill.sum", Fill{elements, 0}, 0, Phase::setup, {write(whole(schedule_, tensor))}});
      auto& order = schedule_.programs.front().order;
      order.insert(order.begin(), call_block(schedule_, fill));
    }
    return std::move(schedule_);
  }

 private:
  struct Area {
    StorageId storage = 0;
    std::int64_t used = 0;  // elements used by the operation that is being added
  };

  Dtype type(bool wide) const { return wide ? accumulation_of(dtype_) : dtype_; }

  View place(const char* what, BufferKind kind, Dtype dtype, std::int64_t rows, std::int64_t cols) {
    const auto [found, fresh] = areas_.try_emplace({what, dtype});
    Area& area = found->second;
    if (fresh)
      area.storage = add_storage(schedule_, what + std::string(".") + std::string(name_of(dtype)), dtype, kind, 0);
    const std::string name = fmt::format("{}.{}", what, schedule_.tensors.size());
    const TensorId tensor = add_placed_tensor(schedule_, name, rows, cols, {{area.storage, area.used}});
    area.used += (rows * cols + 127) / 128 * 128;
    Storage& storage = schedule_.storages[area.storage];
    storage.elements = std::max(storage.elements, area.used);
    return whole(schedule_, tensor);
  }

  Dtype dtype_;
  Schedule schedule_;
  std::map<std::pair<std::string, Dtype>, Area> areas_;
};

void add_layer(KernelList& list, const GemmShape& s) {
  const std::int64_t t = s.tokens, o = s.outputs, i = s.inputs;
  list.add(Gemm{t, o, i, false, true, false}, {list.in(t, i), list.in(o, i), list.out(t, o)});
  list.add(Gemm{t, o, i, false, true, true}, {list.in(t, i), list.in(o, i), list.in(1, o), list.out(t, o)});
  list.add(Gemm{t, i, o, false, false, false}, {list.in(t, o), list.in(o, i), list.out(t, i)});
  list.add(Gemm{o, i, t, true, false, false}, {list.in(t, o), list.in(t, i), list.sum(o, i)});
}

void add_attention(KernelList& list, const AttentionShape& s) {
  const std::int64_t tokens = s.batch * s.seq, width = s.heads * s.head_dim, qkv = width + 2 * s.kv_heads * s.head_dim;
  Attention attention{Pass::forward, s.batch, s.heads, s.kv_heads, s.seq, s.head_dim, true};
  list.add(attention, {list.in(tokens, qkv), list.out(tokens, width), list.out(s.batch * s.heads, s.seq, true)});
  attention.pass = Pass::dgrad;
  list.add(attention, {list.in(tokens, qkv), list.in(tokens, width), list.in(s.batch * s.heads, s.seq, true),
                       list.in(tokens, width), list.out(tokens, qkv)});
}

// Adds operations that exist only where ranks share a model.
void add_shared(KernelList& list, std::int64_t elements) {
  for (const bool from_wide : {false, true})
    for (const bool to_wide : {false, true})
      list.add(Cast{elements}, {list.in(1, elements, from_wide), list.out(1, elements, to_wide)});
  for (const bool wide : {false, true}) {
    list.add(Fill{elements, 0}, {list.out(1, elements, wide)});
    for (const std::int64_t parts : {2, 4})
      list.add(LocalReduce{parts, elements / parts},
               {list.in(parts, elements / parts, wide), list.out(1, elements / parts, wide)});
  }
  const std::int64_t cols = std::max<std::int64_t>(16, std::min<std::int64_t>(elements / 16, 1024)),
                     rows = elements / cols;
  list.add(Elementwise{ElementwiseFn::bias_add, rows, cols},
           {list.in(rows, cols), list.in(rows, cols), list.in(1, cols), list.out(rows, cols)});
  list.add(Elementwise{ElementwiseFn::add, rows, cols},
           {list.in(rows, cols), list.in(rows, cols), list.out(rows, cols)});
  // The previous operation has written the operand that is added to.
  Access sum = list.out(rows, cols);
  sum.mode = AccessMode::accumulate;
  list.add(Elementwise{ElementwiseFn::accumulate, rows, cols}, {list.in(rows, cols), sum});
  // Sums of sharded gradients, in f32: the parts were reduced in f32 or in the compute type.
  for (const bool wide : {false, true})
    list.add(Elementwise{ElementwiseFn::accumulate, rows, cols}, {list.in(rows, cols, wide), list.sum(rows, cols)});
  const std::int64_t d = 64, heads = std::max<std::int64_t>(2, cols / d / 2 * 2), width = heads * d,
                     tokens = std::max<std::int64_t>(1, elements / (4 * width));
  list.add(AttentionMerge{2, 1, heads, tokens, d, 1}, {list.in(2 * tokens, width), list.in(2 * heads, tokens, true),
                                                       list.out(tokens, width), list.out(heads, tokens, true)});
  list.add(PackKv{tokens, heads, heads, d}, {list.in(tokens, 3 * width), list.out(tokens, 2 * width)});
  list.add(JoinQkv{2, 2, tokens, heads, heads, d}, {list.in(2 * tokens, width), list.in(tokens, 2 * width),
                                                    list.in(tokens, 2 * width), list.out(tokens, 3 * width)});
  list.add(SplitHeads{Pass::forward, 2, tokens, heads, heads, d},
           {list.in(tokens, 3 * width), list.out(2 * tokens, 3 * width / 2)});
  list.add(VocabStats{rows, cols, cols}, {list.in(rows, cols), list.integers(rows), list.out(3, rows, true)});
  // Ranks that share experts sort rows that come, and their probabilities; and count them, here none.
  for (const auto& [ranks, local] : {std::pair<std::int64_t, std::int64_t>{2, 4}, {4, 2}, {8, 16}}) {
    const std::int64_t experts = ranks * local, each = std::max<std::int64_t>(1, rows / experts), all = experts * each;
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const bool wide : {false, true}) {
        const std::int64_t columns = wide ? 1 : cols;
        list.add(SortByExpert{pass, ranks, experts, local, all, all, columns, 0, false, each},
                 {list.in(all, columns, wide), list.out(all, columns, wide)});
      }
    list.add(CountRows{ranks, experts, local, all, 0},
             {list.integers(ranks, experts + 1), list.out_integers(1, local + 1)});
  }
}

constexpr std::size_t kLayersOfList = 32;  // number measured together, and kept together

std::vector<Sample> run_list(KernelList list, const std::string& what, const Machine& machine, int repeats,
                             std::int64_t memory_bytes, std::vector<std::string>& notes) {
  const Schedule schedule = list.finished();
  if (schedule.operations.empty()) return {};
  const std::int64_t needed = plan_memory(schedule).peak_bytes() + cuda::overhead_bytes(schedule, 1);
  if (needed > memory_bytes) {
    notes.push_back(fmt::format("{}: left out, need {:.1f} GiB", what, static_cast<double>(needed) / (1 << 30)));
    return {};
  }
  const ProbeRun run = run_probe(schedule, machine, {}, 2, repeats, [&](exec::Executor& executor) {
    fill_randomly(schedule, executor);
    for (StorageId id = 0; id < schedule.storages.size(); ++id)
      if (schedule.storages[id].kind == BufferKind::input)
        std::fill_n(executor.memory(0).at(id), schedule.storages[id].bytes(), std::byte{0});
    executor.upload(exec::Executor::Contents::inputs);
  });
  TimesByOp times_us;
  for (const Timeline& timeline : run.timelines)
    for (const TimelineRow& row : timeline.rows)
      times_us[run.programs.front().ops[row.op].op].push_back(to_us(row.end - row.start));
  return compute_samples(schedule, times_us);
}

}  // namespace

std::vector<Sample> probe_kernels(const Machine& machine, const GpuSizes& sizes, std::int64_t memory_bytes,
                                  const std::function<void(const std::string&)>& progress, Notebook& notebook,
                                  std::vector<std::string>& notes) {
  std::vector<Sample> samples;
  const auto add = [&](KernelList& list, const std::string& what) {
    progress("kernels one by one: " + what);
    using Noted = std::pair<std::vector<Sample>, std::vector<std::string>>;
    const Noted measured = notebook.part(what, [&] {
      Noted fresh;
      fresh.first = run_list(std::move(list), what, machine, sizes.repeats, memory_bytes, fresh.second);
      return fresh;
    });
    samples.insert(samples.end(), measured.first.begin(), measured.first.end());
    notes.insert(notes.end(), measured.second.begin(), measured.second.end());
  };
  const std::size_t count = sizes.gemms.size();
  for (std::size_t begin = 0; begin < count; begin += kLayersOfList) {
    const std::size_t end = std::min(begin + kLayersOfList, count);
    KernelList gemms(Dtype::bf16);
    for (std::size_t i = begin; i < end; ++i) add_layer(gemms, sizes.gemms[i]);
    add(gemms, fmt::format("GEMMs of linear layers {} to {} of {}", begin + 1, end, count));
  }
  KernelList attentions(Dtype::bf16), shared(Dtype::bf16);
  for (const AttentionShape& shape : sizes.attentions) add_attention(attentions, shape);
  for (const std::int64_t elements : sizes.streamed) add_shared(shared, elements);
  add(attentions, "attention");
  add(shared, "what only ranks that share a model run");
  return samples;
}

std::string describe(const PreciseStep& step) {
  const StepShape& s = step.shape;
  const MixtureShape& m = step.mixture;
  return fmt::format(
      "hidden {}, {} heads{}, {} x {} tokens, {} layers, {}, vocabulary {}{}{}{}{}", s.hidden, s.heads,
      s.query_groups > 0 ? fmt::format(" in {} groups", s.query_groups) : "", s.micro_batch, s.seq, s.layers,
      step.precision, s.vocab, step.dropout > 0 ? ", dropout" : "",
      step.has_epilogues ? step.sums_gelu ? ", epilogues with GELU's bias" : ", epilogues" : "",
      step.attention == AttentionBackend::unfused ? ", unfused attention" : "",
      m.experts > 0 ? fmt::format(", {} experts of {}{}", m.experts, m.ffn, m.biased ? ", biased" : "") : "");
}

std::vector<Sample> probe_model(const Machine& machine, const PreciseStep& of, int repeats, std::int64_t memory_bytes,
                                std::vector<std::string>& notes) {
  Scenario scenario = scenario_of(of.shape, 1, 1);
  if (of.mixture.experts > 0) add_experts(of.mixture, scenario.model);
  Training& training = scenario.training;
  training.precision = of.precision;
  training.attention_backend = of.attention;
  training.gelu_fusion = training.bias_gradient_fusion = training.residual_fusion = training.norm_gradient_fusion =
      of.has_epilogues;
  training.gelu_bias_gradient_fusion = of.sums_gelu;
  scenario.model.hidden_dropout = scenario.model.attention_dropout = of.dropout;
  const Schedule schedule = build_schedule(scenario);
  const std::int64_t needed = plan_memory(schedule).peak_bytes() + cuda::overhead_bytes(schedule, 1);
  if (needed > memory_bytes) {
    notes.push_back(
        fmt::format("{}: left out, needs {:.1f} GiB", describe(of), static_cast<double>(needed) / (1 << 30)));
    return {};
  }
  try {
    StepRun step(scenario, machine);
    Undisturbed undisturbed(1);
    for (int repeat = 0; repeat < repeats; ++repeat) step.add(step.run(undisturbed));
    for (const std::string& note : step.notes()) notes.push_back(note);
    return step.samples();
  } catch (const Error& error) {  // libraries take memory too, and more than is known in advance
    if (error.kind() != ErrorKind::runtime) throw;
    notes.push_back(describe(of) + ": left out, " + error.what());
    return {};
  }
}

}  // namespace stretto::calibrate
