// Tests that cuDNN makes plans for the attention of common models on an H100 that is described but absent: the graphs
// have the right form, and the memory that they need besides their operands is known. Only a GPU can test their results
// (gpu_tests).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/cuda/module/attention.hpp"
#include "exec/cuda/module/attention_support.hpp"
#include "tests/attention_parts.hpp"
#include "tests/cases.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::cuda {
namespace {

// Facts about an H100 SXM (its data sheet, CUDA programming guide); cuDNN 9.19 asks for these keys.
const DescribedDevice kH100{
    R"({"cudaDeviceId":0,"deviceName":"NVIDIA H100 80GB HBM3","deviceVer":900,"driverVer":13000,"isTccDriver":0,)"
    R"("l2CacheSize":52428800,"maxBlockSize":[1024,1024,64],"maxCtasPerSM":32,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"memClockRateKHz":2619000,"multiProcessorCount":132,)"
    R"("pciDeviceId":0,"regsPerBlock":65536,"reservedSharedMemoryPerBlock":1024,"smClockRateKHz":1980000,)"
    R"("supportCoopLaunch":1,"totalGlobalMem":84929347584,"warpSize":32})"};

// Nothing runs, so operands have no memory; but addresses in them are computed.
std::byte no_memory;
std::vector<exec::Operand> operands_of(const Attention& a, Dtype dtype = Dtype::bf16) {
  const std::int64_t tokens = a.batch * a.query_tokens(), hidden = a.heads * a.head_dim;
  const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
    return exec::Operand{&no_memory, dtype, rows, cols, cols};
  };
  const exec::Operand wide = matrix(tokens, a.qkv_cols()), out = matrix(tokens, hidden),
                      kv = matrix(a.batch * a.key_tokens(), a.kv_cols()),
                      lse{&no_memory, Dtype::f32, a.batch * a.heads, a.query_tokens(), a.query_tokens()};
  std::vector<exec::Operand> all = {wide};
  if (a.kv_apart) all.push_back(kv);
  all.insert(all.end(), {out, lse});
  if (a.pass == Pass::dgrad) all.insert(all.end(), {out, a.kv_apart ? out : wide});
  if (a.pass == Pass::dgrad && a.kv_apart) all.push_back(kv);
  if (a.dropout > 0) all.push_back({nullptr, Dtype::i32, 1, kDropoutKeyWords, kDropoutKeyWords});
  return all;
}

// Returns from the only file in a folder of plans what it was made for, and the key of its only plan.
std::pair<std::string, PlanFile::Numbers> only_plan_in(const std::filesystem::path& folder) {
  std::ifstream in(std::filesystem::directory_iterator(folder)->path());
  std::string line, made_for;
  std::getline(in, line);
  std::getline(in, made_for);
  std::getline(in, line, ':');
  std::istringstream numbers(line);
  return {made_for, {std::istream_iterator<std::int64_t>(numbers), {}}};
}

}  // namespace

TEST_CASE("cuDNN has plans for the attention of common models") {
  AttentionRunner runner(kH100);
  testing::Cases cases;
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const auto& [batch, heads, kv_heads, seq, head_dim] :
         {std::tuple{64, 12, 12, 1024, 64}, std::tuple{4, 25, 25, 1024, 64}, std::tuple{1, 12, 12, 2048, 128},
          std::tuple{1, 4, 4, 8192, 128}, std::tuple{2, 3, 3, 100, 40},
          // Grouped queries: Llama 3 8B and 70B, whole and as tensor parallelism cuts them, and other groups.
          std::tuple{1, 32, 8, 8192, 128}, std::tuple{1, 64, 8, 8192, 128}, std::tuple{1, 8, 1, 8192, 128},
          std::tuple{2, 8, 4, 1024, 64}, std::tuple{2, 6, 2, 100, 40},
          // Wide heads, as in Gemma 2.
          std::tuple{1, 8, 4, 2048, 256}, std::tuple{1, 4, 4, 1024, 192}}) {
      if (!cases.takes_next()) continue;
      const Attention work{pass, batch, heads, kv_heads, seq, head_dim, true, 0};
      const auto operands = operands_of(work);
      INFO(describe(Work(work)));
      const bool has_plan = runner.prepare(work, operands);
      INFO(runner.why_not());
      REQUIRE(has_plan);
      // A gradient sums dq in f32, and has dk and dv of all heads in bf16 before it adds up those of a group.
      const std::int64_t row = 4 * (head_dim + 1) + (kv_heads < heads ? 2 * 2 * head_dim : 0),
                         least = pass == Pass::forward ? 0 : row * batch * heads * seq;
      CHECK(runner.workspace_bytes(work, operands) >= least);
      CHECK(runner.workspace_bytes(work, operands) < least + (1 << 20));
      CHECK(runner.workspace_bytes(work, operands) % 256 == 0);
      CHECK(runner.prepare(work, operands));  // the plan is kept
    }
}

TEST_CASE("cuDNN has plans for parts of sequences") {
  AttentionRunner runner(kH100);
  testing::Cases cases;
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const auto& [batch, heads, kv_heads, seq, head_dim] :
         {std::tuple{8, 14, 14, 1536, 64}, std::tuple{1, 8, 2, 8192, 128}})
      for (const testing::AttentionParts& parts : testing::attention_parts(4)) {
        if (!cases.takes_next()) continue;
        const Attention work = testing::of_parts({pass, batch, heads, kv_heads, seq, head_dim, true, 0}, parts);
        const auto operands = operands_of(work);
        INFO(describe(Work(work)));
        const bool has_plan = runner.prepare(work, operands);
        INFO(runner.why_not());
        REQUIRE(has_plan);
        CHECK(runner.has_plan(work, operands));
        CHECK(runner.workspace_bytes(work, operands) % 256 == 0);
      }
}

TEST_CASE("cuDNN has no plans for parts of sequences that are short, drop, or have documents") {
  AttentionRunner runner(kH100);
  const Attention plain = testing::of_parts({Pass::forward, 2, 4, 4, 1024, 64, true, 0}, {{4, 1, 1}, {4, 0, 1}});
  const auto why_not = [&](const Attention& work) {
    return runner.prepare(work, operands_of(work)) ? "" : runner.why_not();
  };
  CHECK(why_not(plain).empty());
  Attention work = plain;
  work.seq = 256;
  CHECK_THAT(why_not(work), Catch::Contains("64 queries and more"));
  work = plain;
  work.dropout = 0.1;
  CHECK_THAT(why_not(work), Catch::Contains("with dropout"));
  // The tokens of all ranks are a whole sequence, if in another order.
  work.queries = work.keys = {4, 0, 4};
  work.kv_apart = false;
  CHECK(why_not(work).empty());
  work.dropout = 0;
  work.by_document = true;
  CHECK_THAT(why_not(work), Catch::Contains("documents"));
}

// Returns a device with the properties by which engines differ; all others are the H100's.
DescribedDevice another(const std::string& version, const std::string& sms, const std::string& shared_bytes) {
  DescribedDevice device = kH100;
  const auto put = [&](const std::string& key, const std::string& value) {
    const std::size_t at = device.json.find('"' + key + "\":") + key.size() + 3;
    device.json.replace(at, device.json.find(',', at) - at, value);
  };
  put("deviceVer", version);
  put("multiProcessorCount", sms);
  put("maxSharedMemoryPerBlockOptin", shared_bytes);
  return device;
}

TEST_CASE("cuDNN has plans for the A100 and the B200, but for gradients of wide heads") {
  testing::Cases cases;
  for (const DescribedDevice& device : {another("800", "108", "166912"), another("1000", "148", "232448")}) {
    AttentionRunner runner(device);
    INFO(device.json);
    for (const Pass pass : {Pass::forward, Pass::dgrad})
      for (const auto& [kv_heads, head_dim, dropout] :
           {std::tuple{12, 64, 0.0}, std::tuple{4, 128, 0.0}, std::tuple{12, 128, 0.1}, std::tuple{12, 256, 0.0}}) {
        if (!cases.takes_next()) continue;
        const Attention work{pass, 2, 12, kv_heads, 1024, head_dim, true, dropout};
        INFO(describe(Work(work)));
        const bool has_plan = runner.prepare(work, operands_of(work));
        INFO(runner.why_not());
        CHECK(has_plan == (pass == Pass::forward || head_dim <= 128));
      }
  }
}

TEST_CASE("cuDNN has plans for parts of sequences on the A100 and the B200") {
  const testing::AttentionParts forms[] = {
      {{4, 1, 1}, {4, 1, 1}}, {{4, 1, 1}, {4, 0, 1}}, {{4, 1, 1}, {4, 2, 1}}, {{4, 1, 1}, {4, 0, 4}}};
  testing::Cases cases;
  for (const DescribedDevice& device : {another("800", "108", "166912"), another("1000", "148", "232448")}) {
    AttentionRunner runner(device);
    INFO(device.json);
    for (const Pass pass : {Pass::forward, Pass::dgrad})
      for (const testing::AttentionParts& parts : forms) {
        if (!cases.takes_next()) continue;
        const Attention work = testing::of_parts({pass, 2, 8, 2, 2048, 128, true, 0}, parts);
        INFO(describe(Work(work)));
        const bool has_plan = runner.prepare(work, operands_of(work));
        INFO(runner.why_not());
        CHECK(has_plan);
      }
  }
}

TEST_CASE("cuDNN has plans where every query sees every key") {
  AttentionRunner runner(kH100);
  for (const Pass pass : {Pass::forward, Pass::dgrad}) {
    const Attention work{pass, 4, 16, 16, 512, 64, false, 0};
    const bool has_plan = runner.prepare(work, operands_of(work));
    INFO(describe(Work(work)) << ": " << runner.why_not());
    CHECK(has_plan);
  }
}

TEST_CASE("cuDNN has plans with dropout") {
  AttentionRunner runner(kH100);
  testing::Cases cases;
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const auto& [kv_heads, seq, head_dim, is_causal] :
         {std::tuple{12, 1024, 64, true}, std::tuple{4, 1024, 128, true}, std::tuple{12, 100, 256, true},
          std::tuple{12, 512, 64, false}}) {
      if (!cases.takes_next()) continue;
      const Attention work{pass, 2, 12, kv_heads, seq, head_dim, is_causal, 0.1};
      const auto operands = operands_of(work);
      INFO(describe(Work(work)));
      const bool has_plan = runner.prepare(work, operands);
      INFO(runner.why_not());
      REQUIRE(has_plan);
      // The mask takes no memory, its seed little.
      const std::int64_t row = 4 * (head_dim + 1) + (kv_heads < 12 ? 2 * 2 * head_dim : 0),
                         least = 256 + (pass == Pass::forward ? 0 : row * 2 * 12 * seq);
      CHECK(runner.workspace_bytes(work, operands) >= least);
      CHECK(runner.workspace_bytes(work, operands) < least + (1 << 20));
      // Another probability needs another plan.
      for (const double dropout : {0.0, 0.5}) {
        Attention other = work;
        other.dropout = dropout;
        CHECK_FALSE(runner.has_plan(other, operands_of(other)));
      }
    }
}

TEST_CASE("of cuDNN's engines the fastest is taken, and kept for other processes") {
  const testing::TempDir dir;
  const Attention work{Pass::forward, 2, 12, 12, 1024, 64, true, 0};
  const auto operands = operands_of(work);
  std::size_t met = 0;
  DescribedDevice device = kH100;
  device.plan_folder = dir.path().string();
  const auto kept = [&](auto time_ms) {
    met = 0;
    device.time_ms = [&](std::size_t i) {
      met = std::max(met, i + 1);
      return time_ms(i);
    };
    AttentionRunner runner(device);
    const bool has_plan = runner.prepare(work, operands);
    if (has_plan) runner.save();
    const std::vector<std::string> notes = runner.notes();
    return std::tuple{has_plan, runner.engine_of(work, operands), notes.empty() ? "" : notes.front()};
  };
  using Ms = std::optional<float>;
  if (!testing::is_fast_suite()) CHECK_FALSE(std::get<0>(kept([](std::size_t) { return Ms(); })));
  // The last engine is the fastest.
  const auto last = kept([](std::size_t i) { return Ms(10.0f - static_cast<float>(i)); });
  CHECK(std::get<2>(last).empty());
  const std::size_t engines = met;
  CHECK(engines >= 2);
  CHECK(engines <= 8);
  // Another process takes the plan unchanged, whatever it would measure.
  const auto again = kept([](std::size_t i) { return Ms(1.0f + static_cast<float>(i)); });
  CHECK(met == 0);
  CHECK(std::get<1>(again) == std::get<1>(last));
  CHECK_THAT(std::get<2>(again), Catch::Contains("1 shapes") && Catch::Contains(dir.path().string()));
  // A plan that cuDNN does not accept is measured again: here the first engine is the fastest.
  const auto [made_for, key] = only_plan_in(dir.path());
  PlanFile file(device.plan_folder, made_for);
  REQUIRE(file.find(key) != nullptr);
  file.put(key, {987654});
  file.save();
  const auto first = kept([](std::size_t i) { return Ms(1.0f + static_cast<float>(i)); });
  CHECK(met == engines);
  CHECK(std::get<0>(first));
  CHECK(std::get<1>(first) != std::get<1>(last));
}

TEST_CASE("what cuDNN is not asked for is said") {
  AttentionRunner runner(kH100);
  const Attention plain{Pass::forward, 2, 4, 4, 128, 64, true, 0};
  const auto refuses = [&](Attention work, Dtype dtype = Dtype::bf16) {
    return !runner.prepare(work, operands_of(work, dtype)) && !runner.why_not().empty();
  };
  CHECK(runner.prepare(plain, operands_of(plain)));
  Attention work = plain;
  work.head_dim = 264;
  CHECK(refuses(work));
  work = plain;
  work.head_dim = 36;
  CHECK(refuses(work));
  std::vector<exec::Operand> operands = operands_of(plain);
  operands[0].ld += 3;
  work = plain;
  work.batch = 5;
  CHECK(!runner.prepare(work, operands));
  // Log-sum-exps that do not follow one another are copied.
  operands = operands_of(work);
  operands[2].ld += 8;
  REQUIRE(runner.prepare(work, operands));
  CHECK(runner.workspace_bytes(work, operands) - runner.workspace_bytes(work, operands_of(work)) == 5 * 4 * 128 * 4);
  work = plain;
  work.batch = 3;
  CHECK(refuses(work, Dtype::f32));
}

TEST_CASE("versions of cuDNN that are known to be wrong are not asked") {
  const Attention even{Pass::dgrad, 2, 4, 4, 256, 64, true, 0};
  Attention odd = even, forward = even;
  odd.seq = 200;
  forward.pass = Pass::forward;
  forward.seq = 200;
  for (const std::size_t version : {91000, 91001}) CHECK_FALSE(fault_of_cudnn(version, even).empty());
  for (const std::size_t version : {90800, 91002, 91500, 91501, 91900}) {
    CHECK(fault_of_cudnn(version, even).empty());
    CHECK(fault_of_cudnn(version, forward).empty());
    CHECK(fault_of_cudnn(version, odd).empty() == (version > 91500));
  }
  // Queries and keys of each part count: 128 queries see 192 keys.
  const Attention apart = testing::of_parts({Pass::dgrad, 2, 4, 4, 384, 64, true, 0}, {{3, 1, 1}, {3, 2, 1}});
  CHECK_FALSE(fault_of_cudnn(91500, apart).empty());
  CHECK(fault_of_cudnn(91501, apart).empty());
  const Attention gathered = testing::of_parts({Pass::forward, 2, 4, 4, 320, 64, true, 0}, {{2, 0, 1}, {2, 0, 2}});
  CHECK_FALSE(fault_of_cudnn(90500, gathered).empty());
  CHECK(fault_of_cudnn(90600, gathered).empty());
}

}  // namespace stretto::cuda
