#include "model/step_size.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/bind.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

Scenario sized_scenario(const std::string& rest) {
  return parse_scenario(
      "[model]\nnum_layers = 8\nhidden_size = 16\nnum_attention_heads = 4\nseq_length = 8\nvocab_size = 64\n" + rest,
      "size.toml");
}

std::string failure_of(const std::string& rest, std::int64_t free_bytes) {
  try {
    require_size(sized_scenario(rest), free_bytes);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the size of a step follows from the scenario within a factor of two") {
  for (const char* rest :
       {"[training]\nglobal_batch_size = 64", "[parallel]\ndata_parallel_size = 3\n[training]\nglobal_batch_size = 48",
        "[parallel]\ndata_parallel_size = 3\n[cluster]\nranks_per_device = 2\n[training]\nglobal_batch_size = 48",
        "[parallel]\npipeline_model_parallel_size = 4\n[training]\nglobal_batch_size = 16",
        "[parallel]\npipeline_model_parallel_size = 2\nvirtual_pipeline_model_parallel_size = 4\n"
        "[cluster]\nranks_per_device = 1\n[training]\nglobal_batch_size = 16\n"
        "recompute_granularity = \"full\"\n[overlap]\noverlap_p2p_comm = true",
        "[parallel]\ntensor_model_parallel_size = 4\nsequence_parallel = true\n[overlap]\ntp_comm_overlap = true",
        "[training]\nglobal_batch_size = 64\nattention_backend = \"unfused\"\nrecompute_granularity = \"full\"",
        "[parallel]\ndata_parallel_size = 2\n[overlap]\noverlap_grad_reduce = true\nbucket_size = 1",
        // Stages that share devices are not folded, nor are devices that cut groups at different places.
        "[parallel]\ndata_parallel_size = 16\npipeline_model_parallel_size = 2\norder = \"tp-cp-ep-pp-dp\"\n"
        "[cluster]\nranks_per_device = 2",
        "[parallel]\ndata_parallel_size = 15\npipeline_model_parallel_size = 2\n[cluster]\nranks_per_device = 2",
        "[parallel]\ndata_parallel_size = 6\ntensor_model_parallel_size = 4\n[cluster]\nranks_per_device = 3",
        // Nor are ranks that groups of experts and of dense layers cut at places that are no multiples of each
        // other.
        "num_moe_experts = 3\nmoe_ffn_hidden_size = 8\nadd_bias_linear = false\n[parallel]\ndata_parallel_size = 12\n"
        "tensor_model_parallel_size = 2\nsequence_parallel = true\nexpert_model_parallel_size = 3\n"
        "expert_tensor_parallel_size = 1\n[cluster]\nranks_per_device = 1\n[training]\nglobal_batch_size = 48"}) {
    const Scenario scenario = sized_scenario(rest);
    const Schedule schedule = build_schedule(scenario);
    const std::vector<BoundProgram> programs = bind_representatives(schedule, fold_ranks(schedule));
    double operations = 0;
    for (const BoundProgram& program : programs) operations += double(program.ops.size());
    const StepSize size = step_size_of(scenario);
    INFO(rest << ": " << operations << ", estimated " << size.operations);
    CHECK(size.ranks == double(programs.size()));
    CHECK(size.operations > operations / 2);
    CHECK(size.operations < operations * 2);
  }
}

TEST_CASE("a schedule that memory cannot hold is refused with the key to change") {
  constexpr std::int64_t MiB = 1 << 20;
  CHECK(failure_of("[training]\nglobal_batch_size = 8", 8 * MiB).empty());
  const std::string batch = failure_of("[training]\nglobal_batch_size = 100000", 64 * MiB);
  CHECK_THAT(batch, Contains("size: [training] global_batch_size: expected at most ") && Contains("got 100000") &&
                        Contains("of memory; 64 MiB are free"));
  // The recommended value fits, and is not much smaller than it must be.
  const std::int64_t most = std::stoll(batch.substr(batch.find("at most ") + 8));
  CHECK(failure_of("[training]\nglobal_batch_size = " + std::to_string(most), 64 * MiB).empty());
  CHECK_FALSE(failure_of("[training]\nglobal_batch_size = " + std::to_string(most * 12 / 10), 64 * MiB).empty());
  CHECK_THAT(failure_of("[parallel]\ndata_parallel_size = 10007\n[cluster]\nranks_per_device = 2", 64 * MiB),
             Contains("[cluster] ranks_per_device: expected 1, which makes all ranks of a stage equal, got 2"));
  // A schedule of 8,192 ranks, two a device, took 13.7 GB because stages share devices.
  CHECK_THAT(failure_of("[parallel]\ndata_parallel_size = 4096\npipeline_model_parallel_size = 2\n"
                        "order = \"tp-cp-ep-pp-dp\"\n[cluster]\nranks_per_device = 2",
                        8192 * MiB),
             Contains("[cluster] ranks_per_device: expected 1, which makes all ranks of a stage equal, got 2"));
  CHECK_THAT(failure_of("[parallel]\npipeline_model_parallel_size = 2\nvirtual_pipeline_model_parallel_size = 2\n"
                        "microbatch_group_size_per_vp_stage = 5\n[overlap]\noverlap_p2p_comm = "
                        "true\n[training]\nglobal_batch_size = 30000",
                        64 * MiB),
             Contains("0 micro-batches of a rank)") || Contains("5 micro-batches of a rank)"));
  CHECK_THAT(failure_of("", MiB / 64), Contains("[model] num_layers: expected at most "));
  CHECK_THAT(failure_of("", 1), Contains("[parallel] tensor_model_parallel_size: expected fewer ranks"));
}
