// Tests every kernel of the device, on a GPU in gpu_tests (STRETTO_ON_GPU) and everywhere else with its threads
// emulated, against the host's kernel of that name on equal random data. Operands come from the specification
// (model/schedule/operands.hpp), so that a new kind of work needs a few lines here.
#include <catch2/catch.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "base/values_of.hpp"
#include "tests/cases.hpp"
#include "tests/kernel_operands.hpp"

namespace stretto::cuda {
namespace {

// How many rows there are may depend on data. In bf16 the host rounds rows that its kernel has not written, too; in f32
// they stay NaN. Makes them NaN again.
void forget_unwritten(std::vector<Buffer>& host, const Work& work, std::int64_t gap) {
  std::vector<Buffer> wide = buffers_of(work, Dtype::f32, gap, {false});
  host::run_work(work, bound(wide));
  for (std::size_t i = 0; i < host.size(); ++i) {
    const exec::Operand& o = host[i].operand;
    for (std::int64_t row = 0; row < o.rows && o.mode == AccessMode::write; ++row)
      for (std::int64_t col = 0; col < o.cols; ++col)
        if (o.dtype != Dtype::i32 && std::isnan(wide[i].at(row, col))) host[i].set(row, col, NAN);
  }
}

void check(const Work& work, double tolerance = 2e-6) {
#if defined(STRETTO_ON_GPU)
  tolerance *= 8;  // its exponentials are approximate
#endif
  static testing::Cases cases;  // of all kernels
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t gap : kGaps)
      for (const bool accumulates : {false, true}) {
        if (!cases.takes_next()) continue;
        INFO(describe(work) << ", " << name_of(dtype) << ", gap " << gap << ", accumulates " << accumulates);
        const std::vector<Buffer> before = buffers_of(work, dtype, gap, {accumulates});
        std::vector<Buffer> host = before;
        host::run_work(work, bound(host));
        if (dtype == Dtype::bf16 && is_of_experts(work)) forget_unwritten(host, work, gap);
        for (const std::int64_t first : {0, 1}) {  // elements before each operand
          if (first > 0 && (gap != 8 || accumulates)) continue;
          INFO(first << " before it");
          std::vector<Buffer> device = before;
          OnDevice(device, first).run(work);
          check_same(device, host, before, tolerance);
        }
      }
}

// Comparisons of each kind of work.
void compare(const Elementwise&) {
  for (const ElementwiseFn fn : values_of<ElementwiseFn>())
    for (const auto& [rows, cols] : {std::pair{5, 7}, std::pair{1, 1}, std::pair{13, 64}, std::pair{150, 272}})
      check(Elementwise{fn, rows, cols}, 5e-6);
  // Parts in bf16 are added to a sum in f32.
  const Elementwise work{ElementwiseFn::accumulate, 5, 7};
  std::vector<Buffer> before = buffers_of(work, Dtype::bf16, 0, {false});
  before[1] = buffers_of(work, Dtype::f32, 0, {false})[1];
  std::vector<Buffer> device = before, host = before;
  host::run_work(work, bound(host));
  OnDevice(device).run(work);
  check_same(device, host, before, 2e-6);
}

template <class Norm>
void compare_norm() {
  for (const Pass pass : values_of<Pass>())
    for (const auto& [rows, cols] : {std::pair{5, 7}, std::pair{1, 1}, std::pair{13, 64}, std::pair{150, 520}})
      check(Norm{pass, rows, cols}, 2e-5);
  // The last widths at which a lane has 3, 4, 5 and 7 packs, in f32 and in bf16, and the widths after them.
  for (const std::int64_t cols : {384, 392, 640, 648, 768, 776, 896, 904, 1024, 1032, 1288, 1600, 1792, 1800})
    check(Norm{Pass::backward, 19, cols}, 2e-5);
  for (const std::int64_t cols : {1032, 2048, 2056}) check(Norm{Pass::forward, 5, cols}, 2e-5);
  // A thread has two packs in f32; in bf16 two too, and in f32 both gradients one after the other.
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
  // There are more occurrences than a block collects at once, and more sequences than are read ahead.
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
constexpr std::pair<std::int64_t, std::int64_t> kMatrices[] = {{1, 1}, {5, 7}, {64, 8}, {150, 272}};
void compare(const Amax&) {
  for (const auto& [rows, cols] : kMatrices) check(Amax{rows, cols}, 0);
  for (const auto& [rows, cols] : {std::pair{16, 7}, std::pair{160, 96}}) check(Amax{rows, cols, true}, 0);
  for (const bool equal : {false, true}) check(Amax{90, 48, false, 3, equal ? 0 : 120, equal}, 0);
}
void compare(const UpdateScale&) {
  for (const std::int64_t elements : {1, 300})
    for (const std::int64_t history : {0, 1, 4})
      for (const bool most_recent : {false, true})
        for (const Dtype format : {Dtype::e4m3, Dtype::e5m2})
          check(UpdateScale{elements, history, format, 2, most_recent}, 0);
}
// Scalings of blocks, of matrices with short blocks where there may be some.
struct BlockCase {
  Scaling scaling;
  Dtype format;
  std::int64_t rows, cols;
};
constexpr BlockCase kBlockCases[] = {
    {Scaling::mx, Dtype::e4m3, 96, 160},         {Scaling::mx, Dtype::e5m2, 32, 32},
    {Scaling::block_128, Dtype::e4m3, 144, 272}, {Scaling::block_128x128, Dtype::e4m3, 144, 272},
    {Scaling::nv, Dtype::e2m1x2, 48, 96},        {Scaling::nv_16x16, Dtype::e2m1x2, 48, 144}};

// Groups of rows with scales of blocks: some are empty, and rows beyond a group's are zeros.
void compare_groups() {
  for (const bool equal : {false, true}) {
    for (const auto& [scaling, format] :
         {std::pair{Scaling::mx, Dtype::e4m3}, std::pair{Scaling::mx, Dtype::e5m2},
          std::pair{Scaling::block_128, Dtype::e4m3}, std::pair{Scaling::nv, Dtype::e2m1x2}})
      for (const ColumnCopy copy : {ColumnCopy::none, ColumnCopy::plain, ColumnCopy::transposed}) {
        Quantise work{.rows = 90, .cols = 160, .format = format, .scaling = scaling, .columnwise = copy};
        work.groups = 3;
        work.capacity = equal ? 0 : 120;
        work.equal = equal;
        work.stochastic = scaling == Scaling::nv;
        work.hadamard = work.stochastic && copy != ColumnCopy::none;
        work.layer = QuantisedLayer::experts_fc2;
        check(work, 0);
        if (scaling != Scaling::mx || format != Dtype::e4m3 || copy == ColumnCopy::transposed) continue;
        work.of_codes = true;
        check(work, 0);
      }
    check(Amax{90, 48, true, 3, equal ? 0 : 120, equal}, 0);
  }
  for (const auto& [scaling, format] :
       {std::pair{Scaling::block_128x128, Dtype::e4m3}, std::pair{Scaling::nv_16x16, Dtype::e2m1x2}})
    for (const ColumnCopy copy : {ColumnCopy::none, ColumnCopy::plain, ColumnCopy::transposed}) {
      if (scaling == Scaling::nv_16x16 && copy == ColumnCopy::plain) continue;
      Quantise work{.rows = 384, .cols = 256, .format = format, .scaling = scaling, .columnwise = copy};
      work.groups = 3;
      work.equal = true;
      check(work, 0);
    }
}
void compare(const Quantise&) {
  for (const auto& [rows, cols] : kMatrices)
    for (const ColumnCopy copy : {ColumnCopy::none, ColumnCopy::transposed})
      for (const bool records : {false, true}) {
        Quantise work{.rows = rows, .cols = cols};
        work.format = records ? Dtype::e5m2 : Dtype::e4m3;
        work.columnwise = copy;
        work.records = records;
        check(work, 0);
      }
  for (const bool equal : {false, true})
    for (const ColumnCopy copy : {ColumnCopy::none, ColumnCopy::transposed}) {
      Quantise work{.rows = 90, .cols = 48, .columnwise = copy, .groups = 3, .capacity = equal ? 0 : 120};
      work.equal = equal;
      check(work, 0);
    }
  for (const BlockCase& of : kBlockCases)
    for (const ColumnCopy copy : {ColumnCopy::none, ColumnCopy::plain, ColumnCopy::transposed})
      for (const bool turned : {false, true}) {
        Quantise work{.rows = of.rows, .cols = of.cols, .format = of.format, .scaling = of.scaling, .columnwise = copy};
        if (turned && (of.scaling != Scaling::nv || copy == ColumnCopy::none)) continue;
        if (turned) {
          work.hadamard = work.stochastic = true;
          work.layer = QuantisedLayer::fc1;
          work.seq = 72;
          work.parts = {3, 1, 1};
          work.first_row = 5;
          work.first_column = 16;
        }
        check(work, 0);
        work.rowwise = copy == ColumnCopy::none;
        if (!work.rowwise && !turned) check(work, 0);
      }
  compare_groups();
}
void compare(const TransposeCodes&) {
  for (const auto& [rows, cols] : kMatrices) check(TransposeCodes{rows, cols}, 0);
  for (const BlockCase& of : kBlockCases)
    if (of.scaling != Scaling::nv_16x16) check(TransposeCodes{of.rows, of.cols, of.format, of.scaling}, 0);
}
void compare(const SumSquares&) {
  for (const std::int64_t elements : kElements) check(SumSquares{elements, 3});
}
void compare(const LocalReduce&) {
  for (const std::int64_t elements : kElements)
    for (const std::int64_t parts : {1, 3}) {
      const LocalReduce work{parts, elements};
      check(work);
      // The parts are bf16 and their sum is f32.
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
  // There are more ranges than one launch takes, and some that touch.
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
  // Heads of scores that are wider than those of values, or narrower.
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const auto& [head_dim, value_dim] : {std::pair{48, 33}, std::pair{6, 70}}) {
      Attention latent{pass, 2, 4, 2, 9, head_dim, true, pass == Pass::forward ? 0.25 : 0.0};
      latent.value_dim = value_dim;
      latent.score_scale = 1.3;
      check(latent, 1e-5);
    }
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const ScoreRules& rules :
         {ScoreRules{.window = 3}, ScoreRules{.chunk = 4, .cap = 0.5}, ScoreRules{.has_sink = true},
          ScoreRules{.window = 5, .cap = 2, .has_sink = true, .learns_sink = true}}) {
      Attention ruled{pass, 2, 4, 2, 9, 6, true, rules.window == 5 ? 0.25 : 0.0, 4};
      ruled.rules = rules;
      check(ruled, 1e-5);
    }
  // Parts of a sequence: one part of queries with one part of keys that is before it, the same and after it; with all
  // keys; and all queries.
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

// More columns than a warp has lanes, and more than few experts.
void compare(const Route&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const RouterScore score : values_of<RouterScore>())
      for (const bool pre_softmax : {false, true})
        for (const bool biased : {false, true}) {
          if ((score == RouterScore::sigmoid && pre_softmax) || (biased && pass == Pass::dgrad)) continue;
          const double z_scale = pass == Pass::dgrad && biased == pre_softmax ? 0.3 : 0;
          check(Route{pass, 9, 12, 4, score, pre_softmax, 2.5, 0, 0, z_scale, biased}, 1e-5);
          check(Route{pass, 9, 12, 4, score, pre_softmax, 1, 6, 4, z_scale, biased}, 1e-5);
          check(Route{pass, 7, 72, 8, score, pre_softmax, 2.5, 8, 4, z_scale, biased}, 1e-5);
          check(Route{pass, 5, 40, 40, score, pre_softmax, 1, 0, 0, z_scale, biased}, 1e-5);
          check(Route{pass, 1, 1, 1, score, pre_softmax, 1, 0, 0, z_scale, biased}, 1e-5);
        }
  check(Route{Pass::forward, 2, 600, 3}, 1e-5);
  check(Route{Pass::dgrad, 2, 600, 3, RouterScore::softmax, true, 1, 0, 0, 0.5}, 1e-5);
}
void compare(const BalanceLoss&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const RouterScore score : values_of<RouterScore>()) {
      check(BalanceLoss{pass, 14, 12, 3, score, 1, 7, 0, {}, 0.5}, 1e-5);
      check(BalanceLoss{pass, 14, 40, 3, score, 4, 7, 14, {}, 0.5}, 1e-5);
      check(BalanceLoss{pass, 6, 5, 1, score, 2, 18, 0, {3, 1, 1}, 0.5}, 1e-5);
    }
  check(BalanceLoss{Pass::forward, 2, 600, 3, RouterScore::softmax, 1, 2}, 0);
}
void compare(const MeanCounts&) {
  check(MeanCounts{12});
  check(MeanCounts{300});
}
void compare(const CountLoads&) {
  check(CountLoads{9, 3, 12}, 0);
  check(CountLoads{700, 2, 5}, 0);
}
void compare(const MoveBias&) {
  check(MoveBias{3, 12, 0.25});
  check(MoveBias{2, 300, 0.25});
}
void compare(const SortTokens&) {
  for (const auto& [rows, topk, experts] : {std::tuple{7, 3, 12}, std::tuple{300, 2, 5}, std::tuple{1, 1, 1}}) {
    check(SortTokens{rows, topk, experts}, 0);
    check(SortTokens{rows, topk, experts, rows}, 0);
    check(SortTokens{rows, topk, experts, 0, (experts + 1) / 2, rows * topk, experts / 2}, 0);
    check(SortTokens{rows, topk, experts, rows, (experts + 1) / 2, 0, experts / 2}, 0);
  }
  check(SortTokens{40, 2, 300}, 0);  // more experts than a block has threads
}
void check_codes_moved(const Work& work) {
  for (const std::int64_t gap : kGaps) {
    INFO(describe(work) << ", codes, gap " << gap);
    const std::vector<Buffer> before = buffers_of(work, Dtype::e4m3, gap, {false});
    std::vector<Buffer> host = before, device = before;
    host::run_work(work, bound(host));
    OnDevice(device).run(work);
    check_same(device, host, before, 0);
  }
}
void compare(const Permute&) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const std::int64_t cols : {1, 7, 64, 512})
      for (const bool apart : {false, true}) {
        if (apart && cols > 7) continue;
        check(Permute{pass, 9, 3, cols, apart});
        check(Permute{pass, 9, 3, cols, apart, false, 30, 0, true});
        check(Permute{pass, 9, 3, cols, apart, false, 14, 20});
      }
  check(Permute{Pass::backward, 300, 2, 8});
  for (const std::int64_t cols : {33, 528}) check_codes_moved(Permute{Pass::forward, 9, 3, cols});
}
void compare(const CountRows&) {
  check(CountRows{1, 4, 4, 9, 0}, 0);
  check(CountRows{3, 6, 2, 40, 2}, 0);
  check(CountRows{2, 600, 300, 2000, 300}, 0);
}
void compare(const SortByExpert&) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const std::int64_t cols : {1, 7, 64, 512}) {
      check(SortByExpert{pass, 3, 6, 2, 14, 40, cols, 2}, 0);
      check(SortByExpert{pass, 2, 8, 4, 24, 24, cols, 0, false, 3}, 0);
    }
  check(SortByExpert{Pass::forward, 2, 600, 300, 900, 2000, 3, 300}, 0);
  for (const std::int64_t cols : {33, 528}) check_codes_moved(SortByExpert{Pass::forward, 3, 6, 2, 14, 40, cols, 2});
}
void compare(const WeightedActivation&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const bool gated : {false, true})
      for (const std::int64_t cols : {1, 7, 64, 272}) {
        check(WeightedActivation{pass, 9, cols, gated}, 1e-5);
        check(WeightedActivation{pass, 5, cols, gated, 3, 9}, 1e-5);
      }
}
void compare(const GateRows&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const std::int64_t cols : {1, 7, 64, 272}) check(GateRows{pass, 9, cols}, 1e-5);
}
void compare(const LatentHeads&) {
  for (const Pass pass : {Pass::forward, Pass::dgrad}) {
    check(LatentHeads{pass, 14, 3, 7, 6, 4, 5}, 1e-5);
    check(LatentHeads{pass, 5, 1, 5, 1, 2, 1}, 1e-5);
    check(LatentHeads{pass, 9, 4, 9, 128, 64, 128, 10000, {40, 32, 1, 1, 0.7, 4096}}, 1e-5);
  }
}

template <OfLinearAttention W>
void compare(const W&) {}             // the host's only: missing_kernel() refuses it
void compare(const Gemm&) {}          // cuBLAS runs GEMMs: the executor's tests cover them
void compare(const GroupedGemm&) {}   // the same
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

// A kind without a comparison does not compile.
TEST_CASE("device kernels agree with the host's", "[cuda]") { compare_all(static_cast<const Work*>(nullptr)); }

}  // namespace stretto::cuda
