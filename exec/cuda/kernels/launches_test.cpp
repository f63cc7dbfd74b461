// Tests of kernels without a counterpart on the host: shares of collectives, cuDNN's attention, the number of launched
// blocks, and NaNs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/values_of.hpp"
#include "exec/cuda/fault.hpp"
#include "exec/cuda/kernels/share.hpp"
#include "model/schedule/parcel.hpp"
#include "tests/attention_parts.hpp"
#include "tests/kernel_operands.hpp"

namespace stretto::cuda {

#if defined(STRETTO_ON_GPU)
TEST_CASE("cuDNN's attention agrees with the host's", "[cuda]") {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const std::int64_t kv_heads : {8, 4, 2, 1})
      for (const auto& [seq, head_dim, is_causal] :
           {std::tuple{64, 16, true}, std::tuple{200, 64, true}, std::tuple{256, 128, true}, std::tuple{256, 256, true},
            std::tuple{200, 64, false}}) {
        const Attention work{pass, 2, 8, kv_heads, seq, head_dim, is_causal, 0};
        if (!OnDevice::runs_by_cudnn(work)) continue;
        INFO(describe(Work(work)));
        const std::vector<Buffer> before = buffers_of(work, Dtype::bf16, 0, {false});
        std::vector<Buffer> device = before, host = before;
        host::run_work(work, bound(host));
        OnDevice(device).run_by_cudnn(work);
        check_same(device, host, before, 1e-3);
      }
}

// Each chunk has 128 tokens: older versions of cuDNN need multiples of them in gradients.
TEST_CASE("cuDNN's attention of parts of sequences agrees with the host's", "[cuda]") {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const auto& [kv_heads, head_dim, gap, timed] : {std::tuple{4, 64, 8, false}, std::tuple{2, 128, 0, true}})
      for (const testing::AttentionParts& parts : testing::attention_parts(4)) {
        const Attention work = testing::of_parts({pass, 2, 4, kv_heads, 1024, head_dim, true, 0}, parts);
        if (!OnDevice::runs_by_cudnn(work)) continue;
        INFO(describe(Work(work)));
        const std::vector<Buffer> before = buffers_of(work, Dtype::bf16, gap, {false});
        std::vector<Buffer> device = before, host = before;
        host::run_work(work, bound(host));
        OnDevice(device).run_by_cudnn(work, timed);
        check_same(device, host, before, 1e-3);
      }
}

// The log-sum-exps of all keys, which gradients take, make results depend on each other: passes over the keys of every
// rank are merged, and their gradients added, as a ring does it, and compared with attention of the whole sequence.
TEST_CASE("cuDNN's attention of the parts of a ring is that of the whole sequence", "[cuda]") {
  constexpr std::int64_t kRanks = 2, kTokens = 512, kQueryHeads = 4, kDim = 64, kHidden = kQueryHeads * kDim;
  const Attention whole{Pass::forward, 1, kQueryHeads, kQueryHeads, kTokens, kDim, true, 0};
  Attention whole_gradient = whole;
  whole_gradient.pass = Pass::dgrad;
  if (!OnDevice::runs_by_cudnn(whole_gradient)) return;
  std::vector<Buffer> all = buffers_of(whole, Dtype::bf16, 0, {false});
  host::run_work(whole, bound(all));
  std::vector<Buffer> gradient = buffers_of(whole_gradient, Dtype::bf16, 0, {false});
  for (const std::size_t i : {0, 1, 2}) gradient[i].bytes = all[i].bytes;
  host::run_work(whole_gradient, bound(gradient));

  double worst = 0, largest = 0;
  const auto compare = [&](double value, double expected) {
    worst = std::max(worst, std::isnan(value) ? INFINITY : std::abs(value - expected));
    largest = std::max(largest, std::abs(expected));
  };
  std::vector<double> dkv(static_cast<std::size_t>(kTokens * 2 * kHidden));
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    std::vector<double> out(static_cast<std::size_t>(kTokens / kRanks * kHidden)), dq = out;
    for (std::int64_t other = 0; other < kRanks; ++other) {
      const testing::AttentionParts parts{{kRanks, rank, 1}, {kRanks, other, 1}};
      // Rows of an operand of the whole sequence that these parts have.
      const auto fill = [&](Buffer& to, const Buffer& from, const SequenceParts& part, std::int64_t first_col) {
        for (std::int64_t row = 0; row < to.operand.rows; ++row)
          for (std::int64_t col = 0; col < to.operand.cols; ++col)
            to.set(row, col, from.at(place_of_row(part, kTokens, row).position, first_col + col));
      };
      Attention work = testing::of_parts(whole, parts);
      std::vector<Buffer> forward = buffers_of(work, Dtype::bf16, 0, {false});
      fill(forward[0], all[0], parts.queries, 0);
      fill(forward[1], all[0], parts.keys, kHidden);
      OnDevice(forward).run_by_cudnn(work);
      work.pass = Pass::dgrad;
      std::vector<Buffer> backward = buffers_of(work, Dtype::bf16, 0, {false});
      for (const std::size_t i : {0, 1}) backward[i].bytes = forward[i].bytes;
      fill(backward[2], all[1], parts.queries, 0);
      fill(backward[4], gradient[3], parts.queries, 0);
      const auto position = [&](std::int64_t row) { return place_of_row(parts.queries, kTokens, row).position; };
      for (std::int64_t head = 0; head < kQueryHeads; ++head)
        for (std::int64_t row = 0; row < kTokens / kRanks; ++row) {
          const double lse = all[2].at(head, position(row)), share = std::exp(forward[3].at(head, row) - lse);
          backward[3].set(head, row, lse);
          for (std::int64_t col = head * kDim; col < (head + 1) * kDim; ++col)
            out[static_cast<std::size_t>(row * kHidden + col)] += share * forward[2].at(row, col);
        }
      OnDevice(backward).run_by_cudnn(work);
      for (std::int64_t row = 0; row < kTokens / kRanks; ++row) {
        for (std::int64_t col = 0; col < kHidden; ++col)
          dq[static_cast<std::size_t>(row * kHidden + col)] += backward[5].at(row, col);
        for (std::int64_t col = 0; col < 2 * kHidden; ++col)
          dkv[static_cast<std::size_t>(place_of_row(parts.keys, kTokens, row).position * 2 * kHidden + col)] +=
              backward[6].at(row, col);
      }
    }
    const SequenceParts own{kRanks, rank, 1};
    for (std::int64_t row = 0; row < kTokens / kRanks; ++row)
      for (std::int64_t col = 0; col < kHidden; ++col) {
        const std::int64_t position = place_of_row(own, kTokens, row).position;
        compare(out[static_cast<std::size_t>(row * kHidden + col)], all[1].at(position, col));
        compare(dq[static_cast<std::size_t>(row * kHidden + col)], gradient[4].at(position, col));
      }
  }
  for (std::int64_t position = 0; position < kTokens; ++position)
    for (std::int64_t col = 0; col < 2 * kHidden; ++col)
      compare(dkv[static_cast<std::size_t>(position * 2 * kHidden + col)], gradient[4].at(position, kHidden + col));
  CHECK(worst < largest / 50);
}
#endif

#if defined(STRETTO_ON_GPU)
TEST_CASE("GEMMs of cuBLAS agree with the host's, with every epilogue that it has", "[cuda]") {
  GemmRunner runner(0, GemmRunner::Epilogues::always);
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (const GemmEpilogue epilogue : values_of<GemmEpilogue>())
      for (const auto& [m, n, k] : {std::tuple{256, 512, 128}, std::tuple{200, 72, 56}, std::tuple{33, 50, 17}})
        for (const bool trans_a : {false, true})
          for (const bool trans_b : {false, true})
            // with a bias where there can be one; otherwise added to old contents
            for (const bool is_more : {false, true}) {
              const bool has_bias = epilogue == GemmEpilogue::gelu || epilogue == GemmEpilogue::residual;
              const Gemm work{m, n, k, trans_a, trans_b, is_more && has_bias, epilogue};
              if (!operands_of(Work(work), 1).error.empty()) continue;
              INFO(describe(Work(work)) << ", " << name_of(dtype) << (is_more ? ", more" : ""));
              const std::vector<Buffer> before = buffers_of(work, dtype, 0, {is_more});
              std::vector<Buffer> device = before, host = before;
              host::run_work(work, bound(host));
              OnDevice(device).run_by_cublas(runner, work);
              // cuBLAS may keep sums of bf16 operands only in bf16.
              check_same(device, host, before, dtype == Dtype::bf16 ? 1.0 / 128 : 1e-3);
            }
}
#endif

#if defined(STRETTO_ON_GPU)
TEST_CASE("products of experts by cuBLAS agree with the host's", "[cuda]") {
  GemmRunner gemms;
  GroupedGemmRunner equal_groups;
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (const Pass pass : {Pass::forward, Pass::dgrad, Pass::wgrad})
      for (const bool equal : {false, true})
        for (const auto& [n, k] : {std::pair{256, 128}, std::pair{50, 17}}) {
          const GroupedGemm work{pass, 6, 300, n, k, 0, equal};
          INFO(describe(Work(work)) << ", " << name_of(dtype));
          const std::vector<Buffer> before = buffers_of(work, dtype, 8, {true});
          std::vector<Buffer> device = before, host = before;
          host::run_work(work, bound(host));
          OnDevice(device).run_by_cublas(gemms, equal_groups, work);
          check_same(device, host, before, dtype == Dtype::bf16 ? 1.0 / 128 : 1e-3);
        }
}
#endif

// Returns the operands of a product of codes: numbers that the host has cast.
std::vector<Buffer> operands_of_codes(const Gemm& work, Dtype dtype, std::optional<Dtype> bias, bool accumulates) {
  std::vector<Buffer> operands = buffers_of(work, dtype, 0, {accumulates});
  for (std::size_t i = 0; i < 2; ++i) {
    Quantise cast{
        .rows = i == 0 ? work.m : work.n, .cols = work.k, .scaling = i == 0 ? work.scaling_a : work.scaling_b};
    std::vector<Buffer> of_cast = buffers_of(cast, Dtype::f32, 0, {false});
    host::run_work(cast, bound(of_cast));
    for (const Buffer& buffer : of_cast) {
      if (buffer.name == "codes") operands[i].bytes = buffer.bytes;
      if (buffer.name == "inverse") operands[work.inverse_index() + i].bytes = buffer.bytes;
    }
  }
  if (bias) {
    Buffer& row = operands[2];
    row.operand.dtype = *bias;
    row.bytes.resize(static_cast<std::size_t>(work.n * bytes_of(*bias)));
    for (std::int64_t col = 0; col < work.n; ++col) row.set(0, col, double(col % 7) / 8 - 0.25);
  }
  return operands;
}

// Returns whether this device has the products; the fake device has all.
bool has_products_of([[maybe_unused]] Scaling scaling) {
#if defined(STRETTO_ON_GPU)
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return scaling == Scaling::tensor ? 10 * major + minor >= 89 : major == 9;
#else
  return true;
#endif
}

TEST_CASE("products of codes have any number of rows, and biases of both types", "[cuda]") {
  GemmRunner runner(0, GemmRunner::Epilogues::always);
  using Scalings = std::pair<Scaling, Scaling>;
  for (const auto& [scaling_a, scaling_b] :
       {Scalings{Scaling::tensor, Scaling::tensor}, Scalings{Scaling::block_128, Scaling::block_128x128},
        Scalings{Scaling::block_128, Scaling::block_128}})
    for (const std::int64_t m : {1, 8, 26, 131})
      for (const Dtype dtype : {Dtype::bf16, Dtype::f32})
        for (const bool has_bias : {false, true})
          for (const bool accumulates : {false, true}) {
            if ((has_bias && accumulates) || !has_products_of(scaling_a)) continue;
            Gemm work{m, 256, 272, false, true, has_bias};
            work.scaling_a = scaling_a;
            work.scaling_b = scaling_b;
            work.split_accumulation = true;  // tensor cores keep too few bits of long sums otherwise
            INFO(describe(Work(work)) << ", " << name_of(dtype) << (accumulates ? ", added" : ""));
            const std::vector<Buffer> before =
                operands_of_codes(work, dtype, has_bias ? std::optional(dtype) : std::nullopt, accumulates);
            std::vector<Buffer> device = before, host = before;
            host::run_work(work, bound(host));
            OnDevice(device).run_by_cublas(runner, work);
            check_same(device, host, before, dtype == Dtype::bf16 ? 1.0 / 128 : 1e-3);
          }
}

#if !defined(STRETTO_ON_GPU)  // the executor's tests on a GPU cover these
TEST_CASE("shares of collectives on the device are those of the host", "[cuda]") {
  const Pace pace{3, 0};
  for (const CollectiveKind kind : kinds_of_equal_slices()) {
    const CollectiveRule rule = rule_of(kind);
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::e4m3}) {
      if (dtype == Dtype::e4m3 && rule.reduces()) continue;  // bytes are only moved
      for (const int members : {2, 3})
        for (const std::int64_t each :
             {1, 7, 64, 1000, 6151, 20000}) {  // the last two: more than all threads take at once
          // All-reduces have a number of elements that members do not divide.
          const std::int64_t elements = members * each + (rule.one_buffer ? 1 : 0);
          const auto width = bytes_of(dtype);
          const std::int64_t in = rule.gives_shard ? each : elements, out = rule.gets_shard ? each : elements;
          std::vector<std::vector<std::byte>> ins, outs;
          for (int m = 0; m < members; ++m) {
            Buffer buffer;
            buffer.operand = {nullptr, dtype, 1, in, in, AccessMode::read};
            buffer.bytes.resize(static_cast<std::size_t>(in * width));
            for (std::int64_t i = 0; i < in; ++i)
              buffer.set(0, i,
                         (dtype == Dtype::e4m3 ? 250 : 2) *
                                 uniform(3, static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(i)) -
                             (dtype == Dtype::e4m3 ? 0 : 1));
            ins.push_back(buffer.bytes);
            outs.emplace_back(static_cast<std::size_t>(out * width), std::byte{0xff});
          }
          INFO(name_of(kind) << " " << name_of(dtype) << ", " << members << " members, " << elements << " elements");
          const auto run = [&](bool on_device, Reduction reduction) {
            const Collective collective{kind, 0, elements, reduction};
            std::vector<std::vector<std::byte>> from = ins, to = outs;
            std::vector<local::Buffers> buffers;
            for (int m = 0; m < members; ++m) {
              auto& own = rule.one_buffer ? from[m] : to[m];
              buffers.push_back({from[m].data(), own.data()});
            }
            for (int phase = 0; phase < rule.phases; ++phase)
              for (int m = members - 1; m >= 0; --m)
                on_device ? run_share(collective, dtype, m, buffers, phase, pace, Stream{})
                          : local::run_share(collective, dtype, m, buffers, phase);
            return rule.one_buffer ? from : to;
          };
          CHECK(run(true, Reduction::sum) == run(false, Reduction::sum));
          if (rule.reduces()) CHECK(run(true, Reduction::max) == run(false, Reduction::max));
        }
    }
  }
  std::vector<std::byte> from(1001, std::byte{7}), to(1001, std::byte{1});
  run_message(from.data(), to.data(), 1000, pace, Stream{});
  CHECK(std::count(to.begin(), to.end(), std::byte{7}) == 1000);
}

namespace {

// Offsets of three members with two experts each; some experts get nothing; each member gives at most 8 rows.
const std::vector<std::int32_t> kOffsets = {0, 3, 3, 5, 5, 8, 8,  //
                                            0, 0, 0, 0, 0, 0, 7,  //
                                            0, 1, 2, 3, 4, 5, 6};

}  // namespace

TEST_CASE("rows of experts that go between ranks on a device are those of the host", "[cuda]") {
  for (const std::int64_t cols : {1, 8})
    for (const CollectiveKind kind : {CollectiveKind::dispatch, CollectiveKind::combine}) {
      Collective collective{kind, 0, 8 * cols};
      collective.experts = 6;
      collective.cols = cols;
      collective.capacity = 12 * cols;
      const auto run = [&](bool on_device) {
        const bool is_dispatch = kind == CollectiveKind::dispatch;
        const std::size_t given = static_cast<std::size_t>((is_dispatch ? 8 : 12) * cols),
                          got = static_cast<std::size_t>((is_dispatch ? 12 : 8) * cols);
        std::vector<std::vector<float>> in(3), out(3, std::vector<float>(got, -1));
        std::vector<local::Buffers> buffers;
        for (std::size_t m = 0; m < 3; ++m) {
          for (std::size_t i = 0; i < given; ++i) in[m].push_back(static_cast<float>(100 * m + i));
          buffers.push_back({in[m].data(), out[m].data(), kOffsets.data()});
        }
        for (int m = 0; m < 3; ++m)
          on_device ? run_share(collective, Dtype::f32, m, buffers, 0, {3, 0}, Stream{})
                    : local::run_share(collective, Dtype::f32, m, buffers, 0);
        return out;
      };
      CHECK(run(true) == run(false));
    }
}

TEST_CASE("numbers of rows that cannot be are an error, the same on every member", "[cuda]") {
  Collective collective{CollectiveKind::dispatch, 0, 8};
  collective.experts = 6;
  collective.cols = 1;
  collective.capacity = 12;
  local::require_fit(collective, kOffsets.data(), 3);
  collective.capacity = 9;
  CHECK_THROWS_WITH(local::require_fit(collective, kOffsets.data(), 3),
                    "experts of rank 2 of 3 that share them get 12 rows, and moe_expert_rank_capacity_factor leaves "
                    "room for 9");
  for (const auto& [at, value] : {std::pair{2, 9}, std::pair{6, 9}, std::pair{7, -1}}) {
    std::vector<std::int32_t> wrong = kOffsets;
    wrong[static_cast<std::size_t>(at)] = value;
    CHECK_THROWS_WITH(local::require_fit(collective, wrong.data(), 3),
                      "dispatch: offsets of experts' rows leave a buffer");
  }
  const GroupedGemm product{Pass::forward, 3, 10, 4, 4};
  const auto run_groups = [&](const std::vector<std::int32_t>& offsets) {
    std::vector<Buffer> buffers = buffers_of(product, Dtype::f32, 0, {false});
    GemmRunner gemms;
    run_product_groups(gemms, product, bound(buffers), offsets.data(), {});
  };
  run_groups({0, 4, 4, 10});
  CHECK_THROWS_WITH(run_groups({0, 4, 3, 10}), "experts: offsets descend");
  CHECK_THROWS_WITH(run_groups({0, 4, 4, 11}), "experts: offset 11 is outside [0, 11)");
  CHECK_THROWS_WITH(run_groups({2, 4, 4, 10}), "experts: offset 2 is outside [0, 1)");
}

TEST_CASE("kernels of experts report what they cannot work with, and touch nothing else", "[cuda]") {
  // Runs the work with one element of an operand changed; returns the report.
  const auto report_of = [](const Work& work, std::size_t operand, std::int64_t row, std::int64_t col, double value) {
    INFO(describe(work));
    std::vector<Buffer> buffers = buffers_of(work, Dtype::f32, 3, {false});
    buffers[operand].set(row, col, value);
    const std::vector<Buffer> before = buffers;
    Fault fault;
    std::vector<std::byte> scratch(1 << 16);
    const std::vector<exec::Operand> operands = bound(buffers);
    launch_work(work, operands,
                {.scratch = scratch.data(), .scratch_bytes = scratch.size(), .sms = 2, .fault = &fault, .op = 7});
    CHECK((fault.kind == Fault::Kind::none || fault.op == 7));
    return text_of(fault, work);
  };
  const Permute permute{Pass::forward, 9, 3, 7};
  CHECK(report_of(permute, 0, 1, 1, 5) == "");
  CHECK(report_of(permute, 0, 1, 1, 27) == "experts: position 27 is outside [0, 27)");
  CHECK(report_of(permute, 0, 1, 1, -1) == "experts: position -1 is outside [0, 27)");
  CHECK(report_of(Permute{Pass::backward, 9, 3, 7, false, false, 14, 20}, 0, 1, 1, 20) ==
        "experts: position 20 is outside [0, 20)");
  CHECK(report_of(SortTokens{7, 3, 12}, 0, 2, 1, 12) == "experts: index 12 is outside [0, 12)");
  CHECK(report_of(CountLoads{9, 3, 12}, 0, 2, 1, -1) == "experts: index -1 is outside [0, 12)");
  CHECK(report_of(Route{Pass::dgrad, 9, 12, 4}, 1, 2, 1, 12) == "experts: index 12 is outside [0, 12)");
  CHECK_THAT(report_of(SortTokens{7, 2, 2, 5}, 0, 0, 0, 0),
             Catch::Contains("gets 7 rows, and moe_expert_capacity_factor leaves room for 5: no token is dropped"));
  CHECK_THAT(report_of(SortTokens{7, 2, 2, 5, 1, 0, 1}, 0, 0, 0, 0), Catch::Contains("expert 1 gets 7 rows"));
  CHECK(report_of(SortTokens{7, 2, 2, 0, 1, 6, 1}, 0, 0, 0, 0) ==
        "experts of this rank get 7 rows, and moe_expert_rank_capacity_factor leaves room for 6");
  CHECK(report_of(CountRows{1, 4, 4, 9, 0}, 0, 0, 4, 12) ==
        "experts of this rank get 12 rows, and moe_expert_rank_capacity_factor leaves room for 9");
  CHECK_THAT(report_of(SortByExpert{Pass::forward, 1, 4, 4, 9, 9, 3, 0}, 0, 0, 4, 12), Catch::Contains("offset"));
  CHECK_THAT(report_of(WeightedActivation{Pass::dgrad, 5, 7, true, 3, 9}, 0, 0, 3, 10), Catch::Contains("offset 10"));
}

TEST_CASE("kernels that go round their work launch as many blocks as the device holds, and no more", "[cuda]") {
  // The emulation behaves as if each thread took 128 of the SM's registers.
  const auto threads_of_sm = std::exchange(emulate::threads_of_sm, 512);
  std::vector<emulate::Launch> launches;
  const auto blocks_of_first = [&](auto start) {
    launches.clear();
    emulate::launches = &launches;
    start();
    emulate::launches = nullptr;
    return std::int64_t{launches.front().grid.x} * launches.front().grid.y;
  };
  constexpr int sms = 2;
  const auto blocks_of = [&](const Work& work, Dtype dtype) {
    std::vector<Buffer> buffers = buffers_of(work, dtype, 0, {true});
    return blocks_of_first([&] { OnDevice(buffers).run(work, kScratch_bytes, sms); });
  };
  // A block has eight warps at 768 columns of bf16, each with a row, and 320 threads at 5,120, each with two packs of
  // eight columns.
  CHECK(blocks_of(LayerNorm{Pass::backward, 200, 768}, Dtype::bf16) == sms * (512 / 256));
  CHECK(blocks_of(RmsNorm{Pass::backward, 20, 5120}, Dtype::bf16) == sms * (512 / 320));
  // Two tiles of columns share four blocks.
  CHECK(blocks_of(LayerNorm{Pass::wgrad, 300, 256}, Dtype::bf16) == 4);
  CHECK(blocks_of(Elementwise{ElementwiseFn::column_sum, 500, 128}, Dtype::bf16) == 4);
  CHECK(blocks_of(SumSquares{5000}, Dtype::f32) == 4);
  CHECK(blocks_of(AdamW{8000, {}}, Dtype::f32) == 4);
  CHECK(blocks_of(ScaledCast{Pass::forward, 1, 3200}, Dtype::f32) == 4);
  CHECK(blocks_of(ScaledCast{Pass::backward, 1, 3200}, Dtype::f32) == 4);
  std::vector<std::byte> from(64), to(64);
  for (const int ctas : {1, 2, 16})
    CHECK(blocks_of_first([&] {
            run_message(from.data(), to.data(), 64, {ctas, 0}, {.sms = sms});
          }) == std::min(ctas, 2));
  emulate::threads_of_sm = threads_of_sm;
}
#endif

TEST_CASE("a token or target outside the vocabulary makes NaN on the device", "[cuda]") {
  const CrossEntropy work{3, 8, 8, 1, 1};
  std::vector<Buffer> buffers = buffers_of(work, Dtype::f32, 0, {false});
  buffers[1].set(2, 0, 8);
  OnDevice(buffers).run(work);
  CHECK(std::isnan(buffers[2].at(0, 0)));
  const Embedding embedding{Pass::forward, 4, 8, 5, 4, false, 1};
  buffers = buffers_of(embedding, Dtype::f32, 0, {false});
  buffers[0].set(1, 0, -1);
  OnDevice(buffers).run(embedding);
  CHECK(std::isnan(buffers[2].at(1, 7)));
  CHECK_FALSE(std::isnan(buffers[2].at(0, 7)));
}

}  // namespace stretto::cuda
