#include "sim/accelerator/kernel_time.hpp"

#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "base/values_of.hpp"
#include "model/lower/builder.hpp"
#include "model/schedule/parcel.hpp"
#include "sim/cost/host_costs.hpp"
#include "sim/platform.hpp"
#include "tests/message_of.hpp"

namespace stretto::sim {
namespace {

using testing::message_of;

// A GPU of 100 TFLOP/s, 1 TB/s that kernels reach in full, 10 SMs, and no gaps between kernels.
Accelerator plain() {
  Accelerator a;
  a.sms = 10;
  a.peak_TFLOPs.value = 100;
  a.hbm_GBps.value = 1000;
  a.gemm_sustained.value = a.gemm_odd.value = a.gemm_unaligned.value = 1;
  a.gemm_share.value = a.hbm_share.value = a.bmm_share.value = a.grouped_gemm.value = 1;
  a.attention = {{"a", {200, {}}, {100, {}}}, {"b", {400, {}}, {100, {}}}};
  return a;
}

struct Case {
  Schedule schedule;
  Operation operation;
  Case() { schedule.compute_dtype = Dtype::bf16; }
  void touch(AccessMode mode, Dtype dtype, std::int64_t rows, std::int64_t cols) {
    const std::string name = "t" + std::to_string(schedule.tensors.size());
    const TensorId tensor = add_tensor(schedule, name, dtype, BufferKind::workspace, rows, cols);
    operation.accesses.push_back({mode, whole(schedule, tensor)});
  }
  double us(const Accelerator& a, const Framework& f = {}) const { return kernel_us(a, f, schedule, operation); }
};

Case wgrad(std::int64_t m, std::int64_t n, std::int64_t k) {
  Case c;
  c.operation.work = Gemm{m, n, k, true, false, false};
  c.touch(AccessMode::read, Dtype::bf16, k, m);
  c.touch(AccessMode::read, Dtype::bf16, k, n);
  c.touch(AccessMode::accumulate, Dtype::f32, m, n);
  return c;
}

}  // namespace

TEST_CASE("a kernel that streams takes its operands' bytes, and the gap", "[sim]") {
  Case c;
  c.operation.work = Elementwise{ElementwiseFn::add, 1000, 1000};
  for (int i = 0; i < 2; ++i) c.touch(AccessMode::read, Dtype::bf16, 1000, 1000);
  c.touch(AccessMode::accumulate, Dtype::f32, 1000, 1000);
  Accelerator a = plain();
  CHECK(c.us(a) == Approx(1e6 * (2 + 2 + 8) / 1e6));
  a.kernel_us.value = 3;
  a.hbm_share.value = 0.5;
  CHECK(c.us(a) == Approx(24 + 3));
  Framework f;
  f.hbm_share = Quantity{1, {}};
  f.kernel_us = Quantity{5, {}};
  f.element_bytes["add"] = {20, {}};
  CHECK(c.us(a, f) == Approx(20 + 5));
  // An entry for a pass takes precedence over the entry for the kind.
  c.operation.work = RmsNorm{Pass::backward, 1000, 1000};
  f.element_bytes["rmsnorm"] = {30, {}};
  CHECK(c.us(a, f) == Approx(30 + 5));
  f.element_bytes["rmsnorm_backward"] = {40, {}};
  f.element_bytes["rmsnorm_forward"] = {50, {}};
  CHECK(c.us(a, f) == Approx(40 + 5));
}

TEST_CASE("copies around collectives of tensor parallelism cost what the framework moves", "[sim]") {
  Accelerator a = plain();
  a.kernel_us.value = 3;
  Framework f;
  const Collective gather{CollectiveKind::all_gather, 0, 1'000'000};
  CHECK(tensor_parallel_copy_us(a, f, gather) == 0);
  f.element_bytes["tensor_parallel_copy"] = {4, {}};
  CHECK(tensor_parallel_copy_us(a, f, gather) == Approx(4 + 3));
  CHECK(tensor_parallel_copy_us(a, f, {CollectiveKind::all_reduce, 0, 1'000'000}) == 0);
}

TEST_CASE("a weight gradient in f32 costs six bytes an element more than the product", "[sim]") {
  const Case c = wgrad(1024, 1024, 8192);
  const double flops = 2.0 * 1024 * 1024 * 8192;
  Accelerator a = plain();
  CHECK(c.us(a) == Approx(flops / 1e8 + 6.0 * 1024 * 1024 / 1e6));
  a.gemm_sustained.value = 1.25;
  CHECK(c.us(a) == Approx(1.25 * flops / 1e8 + 6.0 * 1024 * 1024 / 1e6));
  Framework f;
  f.element_bytes["main_grad"] = {2, {}};  // gradients in bf16 are read in addition
  CHECK(c.us(a, f) == Approx(1.25 * flops / 1e8 + 2.0 * 1024 * 1024 / 1e6));
}

TEST_CASE("products of rows that are not aligned are slower", "[sim]") {
  Accelerator a = plain();
  a.gemm_odd.value = 4;
  a.gemm_unaligned.value = 2;
  const double aligned = wgrad(1024, 1024, 8192).us(a);
  CHECK(wgrad(1025, 1024, 8192).us(a) / aligned == Approx(4).epsilon(0.05));
  CHECK(wgrad(1028, 1024, 8192).us(a) / aligned == Approx(2).epsilon(0.05));
  CHECK(wgrad(1024, 1024, 8191).us(a) / aligned == Approx(1).epsilon(0.01));  // no operand's rows have k elements
}

TEST_CASE("attention takes its flops, and with few heads the block that sees all keys", "[sim]") {
  Case c;
  const auto with = [&](std::int64_t heads, Pass pass = Pass::forward) {
    Attention attention;
    attention.pass = pass;
    attention.batch = 1, attention.heads = attention.kv_heads = heads, attention.seq = 1280, attention.head_dim = 100;
    c.operation.work = attention;
    return c;
  };
  const Accelerator a = plain();
  const double head = 4.0 * 1280 * 1280 * 100;
  CHECK(with(64).us(a) == Approx(64 * head / 200e6));
  CHECK(with(64, Pass::dgrad).us(a) == Approx(64 * 2.5 * head / 100e6));
  // One of ten SMs does 128 of 1,280 rows with all keys, at half the rate that is counted without halving.
  CHECK(with(1).us(a) == Approx(head / 10 / 10e6));
  Framework f;
  f.attention_kernel = "b";
  CHECK(with(64).us(a, f) == Approx(64 * head / 400e6));
  f.attention_kernel = "bb";
  CHECK(
      message_of([&] { with(64).us(a, f); }) ==
      "the platform has no attention kernel \"bb\", which the profile's [kernels] attention_kernel names: it has a, b; "
      "add [accelerator.attention.bb] to the platform or name another; did you mean \"b\"?");
  // Other GPUs have this generation: the platform's default stands in for it.
  f.attention_kernel = "cudnn";
  CHECK(with(64).us(a, f) == with(64).us(a));
}

TEST_CASE("products of unfused attention take their share of the peak, at least their bytes", "[sim]") {
  Accelerator a = plain();
  a.bmm_share.value = 0.5;
  a.kernel_us.value = 3;
  const auto us = [&](AttentionFactor product, std::int64_t head_dim) {
    Case c;
    c.operation.work = AttentionProduct{product, 2, 8, 2, 1024, head_dim};
    c.touch(AccessMode::read, Dtype::bf16, 2 * 1024, (8 + 2 * 2) * head_dim);
    return c.us(a);
  };
  const double scores = 16.0 * 1024 * 1024;
  for (const AttentionFactor product : values_of<AttentionFactor>()) {
    INFO(name_of(product));
    CHECK(us(product, 128) == Approx(2 * scores * 128 / 50e6 + 3));
    CHECK(us(product, 2) == Approx(2 * (scores + 2.0 * 1024 * (8 + 2) * 2) / 1e6 + 3));
  }
  Framework f;
  f.bmm_share = Quantity{1, {}};
  Case c;
  c.operation.work = AttentionProduct{AttentionFactor::dq, 2, 8, 2, 1024, 128};
  c.touch(AccessMode::read, Dtype::bf16, 2 * 1024, (8 + 2 * 2) * 128);
  CHECK(c.us(a, f) == Approx(2 * scores * 128 / 100e6 + 3));
}

TEST_CASE("grouped products approach the rate of a dense one with their rows a group", "[sim]") {
  const auto with = [](Pass pass, std::int64_t groups) {
    Case c;
    const std::int64_t rows = 8 * 1024, n = 512, k = 2048;
    c.operation.work = GroupedGemm{pass, groups, rows, n, k};
    const bool is_wgrad = pass == Pass::wgrad;
    c.touch(AccessMode::read, Dtype::bf16, rows, pass == Pass::forward ? k : n);
    c.touch(AccessMode::read, Dtype::bf16, is_wgrad ? rows : groups * n, k);
    c.touch(AccessMode::read, Dtype::i32, 1, groups + 1);
    if (is_wgrad)
      c.touch(AccessMode::accumulate, Dtype::f32, groups * n, k);
    else
      c.touch(AccessMode::write, Dtype::bf16, rows, pass == Pass::forward ? n : k);
    return c;
  };
  const Accelerator a = plain();
  const double dense = 2.0 * 8 * 1024 * 512 * 2048 / 100e6;
  CHECK(with(Pass::forward, 8).us(a) == Approx(dense * 1214 / 1024));
  CHECK(with(Pass::dgrad, 16).us(a) == Approx(dense * 702 / 512));
  CHECK(with(Pass::wgrad, 8).us(a) == Approx(dense * 1214 / 1024 / 0.9 + 2 * 8.0 * 512 * 2048 * 4 / 1e6));
  // Python issues the products once, and C++ launches one for each expert.
  CHECK(kernels_of({}, with(Pass::forward, 21).operation) == 1);
  CHECK(launches_of(with(Pass::forward, 21).operation) == 21);
  CHECK(launches_of(with(Pass::forward, 21).operation, true) == 1);

  // A product of codes approaches the rate of a dense one of codes.
  Accelerator fp8 = a;
  fp8.fp8.gemm_sustained.value = 2;
  fp8.split_accumulation.value = 1.5;
  const auto of_codes = [&](Pass pass) {
    Case c = with(pass, 8);
    auto& product = std::get<GroupedGemm>(c.operation.work);
    product.scaling_a = product.scaling_b = Scaling::tensor;
    product.split_accumulation = pass != Pass::forward;
    return c.us(fp8);
  };
  const double of_dense = fp8.product_us(ProductType::fp8, 8 * 1024, 512, 2048);
  CHECK(of_codes(Pass::forward) == Approx(of_dense * 1214 / 1024));
  CHECK(of_codes(Pass::dgrad) == Approx(fp8.product_us(ProductType::fp8, 8 * 1024, 2048, 512) * 1.5 * 1214 / 1024));
}

TEST_CASE("casts of groups are a kernel each", "[sim]") {
  Case c;
  Quantise quantise{.rows = 1000, .cols = 1000, .groups = 4, .capacity = 2000};
  c.operation.work = quantise;
  c.touch(AccessMode::read, Dtype::bf16, 2000, 1000);
  c.touch(AccessMode::read, Dtype::f32, 1, 4);
  c.touch(AccessMode::read, Dtype::i32, 1, 5);
  c.touch(AccessMode::write, Dtype::e4m3, 2000, 1000);
  c.touch(AccessMode::write, Dtype::f32, 1, 4);
  Accelerator a = plain();
  a.kernel_us.value = 5;
  CHECK(c.us(a) == Approx(3 + 4 * 5).epsilon(1e-3));
  a.casts = {{1e4, 250e3, 1e6}, {0.1, 0.25, 1}, {}};
  CHECK(c.us(a) == Approx(3 / 0.25 + 4 * 5).epsilon(1e-3));
  CHECK(launches_of(c.operation) == 3 + 3);
}

TEST_CASE("a router is many kernels, or few where the framework fuses it", "[sim]") {
  const auto with = [](Pass pass) {
    Case c;
    c.operation.work = Route{.pass = pass, .rows = 1000, .experts = 100};
    return c;
  };
  Accelerator a = plain();
  a.kernel_us.value = 5;
  Framework fused;
  fused.element_bytes["route"].value = 24;
  for (const auto& [pass, few] : {std::pair{Pass::forward, 5}, {Pass::dgrad, 2}}) {
    const Case c = with(pass);
    CHECK(kernels_of({}, c.operation) == 20);
    CHECK(kernels_of(fused, c.operation) == few);
    CHECK(c.us(a) == Approx(20 * (100e3 * 8 / 1e6 + 5)));
    CHECK(c.us(a, fused) == Approx(100e3 * 24 / 1e6 + few * 5));
  }
}

TEST_CASE("a causal softmax does not read what is masked, and PyTorch's reads and writes often", "[sim]") {
  const auto with = [](std::int64_t heads, Pass pass) {
    Case c;
    c.operation.work = Softmax{pass, heads * 512, 512, true};
    c.touch(AccessMode::read, Dtype::bf16, heads * 512, 512);
    c.touch(pass == Pass::forward ? AccessMode::write : AccessMode::accumulate, Dtype::bf16, heads * 512, 512);
    return c;
  };
  const Accelerator a = plain();
  const double scores = 512.0 * 512;
  CHECK(with(8, Pass::forward).us(a) == Approx(8 * scores * 3 / 1e6));
  CHECK(with(8, Pass::dgrad).us(a) == Approx(8 * scores * 6 / 1e6));
  CHECK(with(6, Pass::forward).us(a) == Approx(6 * scores * 3 / 1e6));
  Framework f;
  f.softmax_heads = 4;
  for (const Pass pass : {Pass::forward, Pass::dgrad}) CHECK(with(6, pass).us(a, f) == Approx(6 * scores * 26 / 1e6));
  CHECK(with(8, Pass::forward).us(a, f) == with(8, Pass::forward).us(a));
  CHECK(kernels_of(f, with(8, Pass::forward).operation) == 1);
  CHECK(kernels_of(f, with(6, Pass::forward).operation) == 7);
  CHECK(kernels_of({}, with(6, Pass::forward).operation) == 1);
  Case whole = with(8, Pass::forward);
  std::get<Softmax>(whole.operation.work).causal = false;
  CHECK(whole.us(a) == Approx(8 * scores * 4 / 1e6));
}

TEST_CASE("dropout that keeps its mask moves a byte more of each element", "[sim]") {
  Case c;
  c.operation.work = Dropout{Pass::dgrad, 64, 1000, 64, 0.1, DropoutSite::attention, false, false, 0, 0, true};
  c.touch(AccessMode::read, Dtype::bf16, 64, 1000);
  c.touch(AccessMode::read, Dtype::i32, 64, 250);
  c.touch(AccessMode::write, Dtype::bf16, 64, 1000);
  CHECK(c.us(plain()) == Approx(64e3 * 5 / 1e6));
}

TEST_CASE("products of codes take the table of their kind, its sustained factor, and Hopper's split accumulation",
          "[sim]") {
  Accelerator a = plain();
  a.gemms = GemmTable::parse(
      "m,n,k,time_us,dtype\n128,128,128,10,bf16\n128,128,128,6,fp8\n128,128,128,5,mxfp8\n128,128,128,3,nvfp4\n",
      "t.csv");
  a.fp8.gemm_sustained.value = 2;
  a.mxfp8.gemm_sustained.value = 3;
  a.nvfp4.gemm_sustained.value = 4;
  a.split_accumulation.value = 1.5;
  const auto product = [](Dtype codes, Scaling scaling, std::int64_t bytes_of_row, bool split) {
    Case c;
    Gemm gemm{128, 128, 128, false, true, false};
    gemm.scaling_a = gemm.scaling_b = scaling;
    gemm.split_accumulation = split;
    c.operation.work = gemm;
    for (int i = 0; i < 2; ++i) c.touch(AccessMode::read, codes, 128, bytes_of_row);
    if (gemm.has_factors())
      for (int i = 0; i < 2; ++i) c.touch(AccessMode::read, Dtype::f32, 1, 1);
    c.touch(AccessMode::write, Dtype::bf16, 128, 128);
    return c;
  };
  CHECK(product(Dtype::e4m3, Scaling::tensor, 128, false).us(a) == Approx(12).epsilon(1e-4));
  CHECK(product(Dtype::e4m3, Scaling::tensor, 128, true).us(a) == Approx(18).epsilon(1e-4));
  CHECK(product(Dtype::e4m3, Scaling::mx, 132, true).us(a) == Approx(15).epsilon(1e-4));
  CHECK(product(Dtype::e2m1x2, Scaling::nv, 72, false).us(a) == Approx(12).epsilon(1e-4));
  CHECK_FALSE(a.multiplies(ProductType::fp8_block));
  CHECK(a.multiplies(ProductType::nvfp4));
}

TEST_CASE("casts take a share of the memory's rate that grows with their size; a norm's may be part of it", "[sim]") {
  Case c;
  c.operation.work = RmsNorm{Pass::forward, 1000, 1000};
  c.touch(AccessMode::write, Dtype::bf16, 1000, 1000);
  c.schedule.operations.push_back(c.operation);
  Operation cast;
  Quantise quantise{.rows = 1000, .cols = 1000};
  quantise.records = true;
  cast.work = quantise;
  cast.accesses = {{AccessMode::read, c.operation.accesses[0].view}};
  c.operation = cast;
  c.touch(AccessMode::write, Dtype::e4m3, 1000, 1000);
  Accelerator a = plain();
  CHECK(c.us(a) == Approx(3));
  a.casts = {{1e4, 1e6, 1e8}, {0.1, 0.5, 0.8}, {}};
  CHECK(c.us(a) == Approx(3 / 0.5));
  CHECK(a.casts.share_at(1e7) == Approx(0.65));
  CHECK(a.casts.share_at(1e9) == 0.8);
  CHECK(a.casts.share_at(1) == 0.1);
  Framework te;
  te.norm_quantises = true;
  CHECK(c.us(a, te) == 0);
  CHECK(launches_of(c.operation) == 3);
  quantise.records = false;  // its scale is known only after the norm
  c.operation.work = quantise;
  CHECK(c.us(a, te) == Approx(3 / 0.5));
}

TEST_CASE("attention of codes is faster by its rate, with casts; fused experts take no casts of their own", "[sim]") {
  Accelerator a = plain();
  a.fp8_attention.value = 1.25;
  a.kernel_us.value = 3;
  Case c;
  Attention attention{Pass::forward};
  attention.batch = 2, attention.heads = attention.kv_heads = 8, attention.seq = 4096, attention.head_dim = 128;
  c.operation.work = attention;
  const auto us = [&](const Case& of, KernelChoices choices) {
    return kernel_us(a, {}, of.schedule, of.operation, choices);
  };
  const double products = us(c, {}) - 3, elements = 2.0 * 4096 * 8 * 128;
  // q, k, v and the result, each of 3 bytes an element at 1 TB/s, in four kernels.
  CHECK(us(c, {.fp8_attention = true}) == Approx(products / 1.25 + 4 * elements * 3 / 1e6 + 5 * 3));

  Case activation;
  activation.operation.work = WeightedActivation{Pass::forward, 1000, 1000, true};
  activation.touch(AccessMode::read, Dtype::bf16, 1000, 2000);
  activation.touch(AccessMode::read, Dtype::f32, 1000, 1);
  activation.touch(AccessMode::write, Dtype::bf16, 1000, 1000);
  activation.schedule.operations.push_back(activation.operation);
  CHECK(us(activation, {}) > 6);
  CHECK(us(activation, {.fuses_experts = true}) == 0);
  Case cast = activation;
  cast.operation.accesses = {{AccessMode::read, activation.operation.accesses.back().view}};
  cast.touch(AccessMode::write, Dtype::e4m3, 1000, 1000);
  cast.operation.work = Quantise{.rows = 1000, .cols = 1000, .scaling = Scaling::mx, .groups = 2};
  CHECK(us(cast, {.fuses_experts = true}) == 0);
  cast.operation.accesses.front().view = activation.operation.accesses.front().view;  // not what it wrote
  CHECK(us(cast, {.fuses_experts = true}) > 0);
}

TEST_CASE("platforms that ship can be read, and every number has a source", "[sim]") {
  for (const std::string& name : data_names("platforms")) {
    INFO(name);
    const Platform platform = read_platform(data_file("platforms", name));
    REQUIRE(platform.accelerator);
    const Accelerator& a = *platform.accelerator;
    CHECK(platform.name == name);
    // H20, L40S and AMD have no published table of products, and PCIe none of collectives.
    const bool has_shares =
        name == "h20-sxm" || name == "l40s" || name == "mi300x" || name == "mi325x" || name == "mi355x";
    CHECK(a.gemms.empty() == has_shares);
    for (const CollectiveKind kind : kinds_of_equal_slices()) CHECK(a.collectives.has(kind) == (name != "l40s"));
    for (const Quantity* q : {&a.peak_TFLOPs, &a.hbm_GBps, &a.gemm_sustained, &a.hbm_share, &a.kernel_us, &a.bmm_share,
                              &a.collective_in_step_us, &a.nvlink.GBps, &a.network.GBps, &a.network_share}) {
      CHECK_FALSE(q->source.origin.empty());
      CHECK((q->high == 0 || (q->low <= q->value && q->value <= q->high)));
    }
    if (a.gemms.empty()) continue;
    // No GEMM of the table is faster than the data sheet.
    for (const double m : a.gemms.grid().m())
      for (const double n : a.gemms.grid().n())
        for (const double k : a.gemms.grid().k())
          for (const ProductType type : values_of<ProductType>())
            if (a.gemms.has(type))
              REQUIRE(2 * m * n * k / a.gemms.time_us(m, n, k, 0, type) * 1e-6 < a.peak_TFLOPs_of(type) * 1.02);
  }
  CHECK(message_of([] { data_file("platforms", "h10-sxm"); }) ==
        "no platform \"h10-sxm\": expected one of a100-40gb, a100-80gb, a800-80gb, b200-sxm, b200-sxm-efa, b300-sxm, "
        "gb200-nvl72, gb300-nvl72, gh200-96gb, h100-hbm2e-500w, h100-sxm, h100-sxm-efa, h20-sxm, h200-sxm, "
        "h200-sxm-efa, h800-sxm, l40s, mi300x, mi325x, mi355x; did you mean \"h100-sxm\"?");
}

TEST_CASE("what a platform lacks beyond its data sheet is assumed or derived", "[sim]") {
  const std::string sheet =
      "name = \"a\"\ndevice = \"b\"\nmemory_bytes = 1\n[accelerator]\ndomain = 8\npeak_TFLOPs = { value = 100, kind = "
      "\"published\", source = \"s\" }\nhbm_GBps = { value = 1000, source = \"s\" }\n[accelerator.nvlink]\nGBps = { "
      "value "
      "= 300, source = \"s\" }\n[accelerator.network]\nGBps = { value = 50, source = \"s\" }\n";
  const Accelerator a = *parse_platform(sheet, "sheet.toml").accelerator;
  CHECK(a.hbm_share.value == Approx(0.85));
  CHECK(a.hbm_share.source.kind == "assumed");
  CHECK(a.attention_named("").forward_TFLOPs.value == Approx(110));
  CHECK(a.attention_named("flash2").forward_TFLOPs.source.kind == "derived");
  CHECK(a.gemm_sustained.value == 1);  // gemm_share refers to sustained GEMMs
  // A given number replaces a default as a whole, not key by key.
  const Accelerator own =
      *parse_platform(sheet + "latency_us = { value = 1, source = \"s\" }\n", "sheet.toml").accelerator;
  CHECK(own.network.latency_us.value == 1);
  CHECK(own.network.latency_us.high == 0);
  CHECK(own.network.latency_us.source.kind == "measured");
  CHECK(message_of([&] {
          parse_platform(sheet.substr(0, sheet.find("[accelerator.network]")), "sheet.toml");
        }).find("value: expected a number from 1e-06 to 1e+05, got nothing") != std::string::npos);
}

TEST_CASE("narrow heads of attention wait for the softmax, wide ones have the rate that was measured", "[sim]") {
  Case c;
  Attention attention;
  attention.batch = 64, attention.heads = attention.kv_heads = 2, attention.seq = 1280, attention.head_dim = 64;
  Accelerator a = plain();
  c.operation.work = attention;
  const double all = c.us(a);
  a.attention.front().half_rate_head_dim = 64;
  CHECK(c.us(a) == Approx(all * (2.0 / 3) / (1.0 / 2)));  // heads of 128 have two thirds of the full rate, of 64 a half
  attention.head_dim = 256;
  c.operation.work = attention;
  const double wide = c.us(a);
  a.attention.front().half_rate_head_dim = 0;
  CHECK(c.us(a) == Approx(wide));
}

TEST_CASE("attention reaches half its rate with the keys that say so", "[sim]") {
  Case c;
  Attention attention;
  attention.batch = 64, attention.heads = attention.kv_heads = 1, attention.seq = 1280, attention.head_dim = 100;
  c.operation.work = attention;
  Accelerator a = plain();
  const double all = c.us(a);
  a.attention.front().half_rate_keys = 1280;
  CHECK(c.us(a) == Approx(2 * all));
  Framework f;
  f.element_bytes["repeat_kv_forward"] = {10, {}};  // of each element of 64 * 1280 queries
  CHECK(c.us(a, f) == Approx(2 * all));             // as many keys as queries: nothing is repeated
  attention.pass = Pass::dgrad;
  c.operation.work = attention;
  const double gradient = c.us(a);
  a.attention.front().backward_half_rate_keys = 2560;
  CHECK(c.us(a) == Approx(3 * gradient));
  attention.pass = Pass::forward;
  attention.heads = 2;
  c.operation.work = attention;
  CHECK(c.us(a, f) == Approx(c.us(a) + 10.0 * 64 * 2 * 1280 * 100 / 1e6));
}

}  // namespace stretto::sim
