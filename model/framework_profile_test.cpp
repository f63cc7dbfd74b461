#include "model/framework_profile.hpp"

#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "model/scenario.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto {
namespace {

using testing::message_of;
using testing::TempDir;

std::string scenario_with(const std::string& profile, const std::string& more = "") {
  return "profile = \"" + profile + "\"\n[model]\npreset = \"gpt2-124m\"\n" + more;
}

std::string written(const TempDir& dir, const std::string& text) { return dir.write("p.toml", text); }

}  // namespace

TEST_CASE("a profile's keys are defaults of the scenario, and the scenario's own win") {
  const TempDir dir;
  const std::string profile = written(dir,
                                      "name = \"p\"\n[scenario.training]\nprecision = \"bf16\"\nlr = 0.5\n"
                                      "[scenario.model]\nhidden_dropout = 0.25\n"
                                      "[kernels]\nattention_kernel = \"cudnn\"\n"
                                      "[memory]\nallocator = \"expandable_segments\"\n"
                                      "[host]\nissue_us = { value = 5, kind = \"assumed\", source = \"x\" }\n");
  const Scenario scenario = parse_scenario(scenario_with(profile, "[training]\nlr = 0.25\n"), "s");
  CHECK(scenario.training.precision == "bf16");
  CHECK(scenario.training.lr == 0.25);
  CHECK(scenario.model.hidden_dropout == 0.25);
  CHECK(scenario.framework.name == "p");
  CHECK(scenario.framework.attention_kernel == "cudnn");
  CHECK(scenario.framework.host.issue_us.value == 5);
  CHECK(scenario.framework.memory.is_known);
  CHECK(scenario.framework.memory.expandable_segments);
  CHECK(parse_scenario(scenario_with(profile), "s", {"training.lr=0.125"}).training.lr == 0.125);
  // The scenario may have no section at all, or the profile may have a section that the scenario lacks.
  CHECK(parse_scenario("[model]\npreset = \"gpt2-124m\"\n", "s").framework.name.empty());
}

TEST_CASE("a profile has the keys of its base where it has none") {
  const TempDir dir;
  const std::string base =
      "name = \"b\"\n[scenario.training]\nprecision = \"bf16\"\nlr = 0.5\n[kernels]\nattention_kernel = "
      "\"cudnn\"\n[element_bytes]\nfill = { value = 6, low = 5, high = 7, kind = \"assumed\", source = "
      "\"x\" }\nadamw = { value = 38, kind = \"assumed\", source = \"x\" }\n[host]\nwaits_for_messages = true\n";
  dir.write("b.toml", base);
  const Scenario scenario =
      parse_scenario(scenario_with(written(
                         dir,
                         "name = \"p\"\nbase = \"b.toml\"\n[scenario.training]\nlr = 0.25\n[element_bytes]\nfill = { "
                         "value = 4, kind = \"assumed\", source = \"y\" }\n")),
                     "s");
  const Framework& f = scenario.framework;
  CHECK(f.name == "p");
  CHECK(scenario.training.precision == "bf16");
  CHECK(scenario.training.lr == 0.25);
  CHECK(f.attention_kernel == "cudnn");
  CHECK(f.host.waits_for_messages);
  CHECK(f.element_bytes.at("adamw").value == 38);
  // A quantity is replaced whole, with its interval.
  CHECK(f.element_bytes.at("fill").value == 4);
  CHECK(f.element_bytes.at("fill").source.origin == "y");
  CHECK(f.element_bytes.at("fill").low != 5);
  // A base may have a base; a circle is an error.
  dir.write("c.toml", "name = \"c\"\nbase = \"b.toml\"\n");
  CHECK(parse_scenario(scenario_with(written(dir, "name = \"p\"\nbase = \"c.toml\"\n")), "s")
            .framework.element_bytes.at("fill")
            .source.origin == "x");
  dir.write("d.toml", "name = \"d\"\nbase = \"d.toml\"\n");
  CHECK(message_of([&] {
          parse_scenario(scenario_with(written(dir, "name = \"p\"\nbase = \"d.toml\"\n")), "s");
        }).find("expected at most 4 profiles") != std::string::npos);
}

TEST_CASE("a profile's split of the pipeline is for whoever states none") {
  const auto split = [](const std::vector<std::string>& set) {
    std::vector<std::string> all = {"model.num_layers=6", "parallel.pipeline_model_parallel_size=2"};
    all.insert(all.end(), set.begin(), set.end());
    const Parallel& p = parse_scenario(scenario_with("meta-llama3"), "s", all).parallel;
    return std::pair(p.account_for_embedding_in_pipeline_split, p.account_for_loss_in_pipeline_split);
  };
  CHECK(split({}) == std::pair(true, true));
  CHECK(split({"parallel.pipeline_model_parallel_layout=\"Ettt|tttL\""}) == std::pair(false, false));
  CHECK(split({"parallel.num_layers_in_first_pipeline_stage=2", "parallel.num_layers_in_last_pipeline_stage=4"}) ==
        std::pair(false, false));
}

TEST_CASE("what a profile gets wrong is said of the profile") {
  const TempDir dir;
  const auto message = [&](const std::string& text) {
    return message_of([&] { parse_scenario(scenario_with(written(dir, text)), "s.toml"); });
  };
  CHECK(message("name = \"p\"\n[scenario.training]\nprecision = \"fp23\"\n")
            .find("s.toml: default of the profile: [training] precision: expected") == 0);
  CHECK(message("name = \"p\"\n[scenario.training]\nlearning_rate = 1\n")
            .find("default of the profile: [training] learning_rate") != std::string::npos);
  CHECK(message("name = \"p\"\n[host]\nissue = 5\n").find("p.toml:3: [host] issue") != std::string::npos);
  CHECK(message("name = \"p\"\n[host]\nissue_us = { value = 5 }\n").find("source") != std::string::npos);
  CHECK(message("").find("name") != std::string::npos);
  CHECK(message_of([] { parse_scenario(scenario_with("megatron-core"), "s"); }) ==
        "no profile \"megatron-core\": expected one of aleph-alpha-scaling, automodel, deepspeed-zero3, fms-fsdp,"
        " fms-fsdp-compile, internevo, llm-foundry, maxtext-gpu, megatron-2021, megatron-2022, megatron-bridge, "
        "megatron-bridge-fsdp, megatron-bridge-moe, megatron-bridge-moe-2026-02, megatron-bridge-moe-library, "
        "megatron-core-fsdp, "
        "megatron-core-moe-2025-05, megatron-core-te, megatron-core-te-bf16-grads, megatron-core-te-flash2, "
        "megatron-deepspeed, megatron-deepspeed-2022, megatron-deepspeed-2022-bf16, meta-llama3, nemo-dgxc, "
        "nemo-dgxc-flash2, nemo-dgxc-lora, nemo-fp32-grads, stretto, torchtitan, torchtitan-2024-04, "
        "torchtitan-2026, torchtitan-compile; did you mean \"megatron-core-te\"?");
}

TEST_CASE("a profile's host has a time for each kind, and one factor of Python") {
  const TempDir dir;
  const auto quantity = [](const char* value, const char* more = "") {
    return std::string("{ value = ") + value + ", kind = \"assumed\", source = \"x\"" + more + " }\n";
  };
  const auto host_of = [&](const std::string& text) {
    return parse_scenario(scenario_with(written(dir, "name = \"p\"\n" + text)), "s").framework.host;
  };
  CHECK_FALSE(host_of("").is_modelled());
  const FrameworkHost equal =
      host_of("[host]\nissue_us = " + quantity("10") + "collective_issue_us = " + quantity("4"));
  CHECK(equal.us_of(HostKind::linear) == 10);
  CHECK(equal.us_of(HostKind::collective, true) == 14);
  CHECK(equal.us_of(HostKind::graph) == 20);
  CHECK(equal.us_of(HostKind::layer) == 0);
  CHECK(equal.us_of(HostKind::cpp) == 6);
  const FrameworkHost kinds =
      host_of("[host]\npython = " + quantity("2.5", ", since = \"26.04\"") + "cpp_us = " + quantity("7") +
              "step_us = " + quantity("100") + "[host.us]\nlinear = " + quantity("40") +
              "linear_backward = " + quantity("20") + "norm = " + quantity("22"));
  CHECK(kinds.python_since == "26.04");
  CHECK(kinds.us_of(HostKind::linear) == 100);
  CHECK(kinds.us_of(HostKind::linear, true) == 50);
  CHECK(kinds.us_of(HostKind::norm, true) == 55);
  CHECK(kinds.us_of(HostKind::step) == 250);
  CHECK(kinds.us_of(HostKind::cpp) == 7);
  CHECK(kinds.us_of(HostKind::attention) == 0);
  for (int i = 0; i < kHostKinds; ++i)
    CHECK(host_kind_named(name_of(static_cast<HostKind>(i))) == static_cast<HostKind>(i));
  CHECK_FALSE(host_kind_named("?").has_value());
  const auto message = [&](const std::string& text) { return message_of([&] { host_of(text); }); };
  CHECK(message("[host.us]\nliner = " + quantity("1")).find("did you mean \"linear\"?") != std::string::npos);
  CHECK(message("[host.us]\nlinear_backward = " + quantity("1")).find("expected `linear` as well") !=
        std::string::npos);
  CHECK(message("[host]\nstep_us = " + quantity("1") + "[host.us]\nstep = " + quantity("1"))
            .find("expected [host.us] step alone") != std::string::npos);
}

TEST_CASE("profiles that ship can be read, with the scenario of every style") {
  for (const char* name : {"aleph-alpha-scaling",
                           "fms-fsdp",
                           "fms-fsdp-compile",
                           "llm-foundry",
                           "megatron-2021",
                           "megatron-2022",
                           "megatron-core-te",
                           "megatron-core-te-bf16-grads",
                           "megatron-core-te-flash2",
                           "megatron-deepspeed",
                           "megatron-deepspeed-2022",
                           "megatron-deepspeed-2022-bf16",
                           "meta-llama3",
                           "nemo-dgxc",
                           "nemo-dgxc-flash2",
                           "nemo-dgxc-lora",
                           "nemo-fp32-grads",
                           "stretto",
                           "torchtitan",
                           "torchtitan-2024-04",
                           "torchtitan-compile"}) {
    INFO(name);
    CHECK(read_framework_profile(data_file("profiles", name)).framework.name == name);
    for (const char* preset : {"gpt2-124m", "llama3-8b"}) {
      const Scenario scenario =
          parse_scenario("profile = \"" + std::string(name) + "\"\n[model]\npreset = \"" + preset + "\"\n", "s");
      CHECK(scenario.training.precision == "bf16");
      const bool is_old = std::string(name) == "megatron-2021" || std::string(name) == "megatron-2022" ||
                          std::string(name).starts_with("megatron-deepspeed");
      CHECK((scenario.training.attention_backend == AttentionBackend::unfused) == is_old);
    }
  }
}

// Bytes of an element of gradients: of memory, of what products add to, and of what is reduced.
struct GradientBytes {
  double memory, products, reduced;
  bool operator==(const GradientBytes&) const = default;
};

GradientBytes gradient_bytes(const Scenario& scenario) {
  const auto& bytes = scenario.framework.element_bytes;
  const auto products = bytes.find("main_grad");
  const auto& memory = scenario.framework.memory.gradient;
  return {memory ? memory->value : 4, products == bytes.end() ? 4 : products->second.value,
          scenario.overlap.grad_reduce_in_fp32 ? 4.0 : 2.0};
}

TEST_CASE("gradients have one size in memory, kernels and reductions, or a row of the profile says why not") {
  for (const std::string& name : data_names("profiles")) {
    CAPTURE(name);
    const Scenario scenario = parse_scenario(scenario_with(name), "s");
    const GradientBytes bytes = gradient_bytes(scenario);
    CAPTURE(bytes.memory, bytes.products, bytes.reduced);
    // A number that differs from what is reduced has a row of its own with a source.
    if (bytes.memory != bytes.reduced && scenario.framework.memory.is_known) {
      const auto& row = scenario.framework.memory.gradient;
      CHECK((bytes.memory == 4 || row.has_value()));
      if (row) CHECK(row->source.origin.size() > 20);
    }
    if (bytes.products != bytes.reduced) {
      const auto row = scenario.framework.element_bytes.find("main_grad");
      REQUIRE(row != scenario.framework.element_bytes.end());
      CHECK(row->second.source.kind != "derived");
      CHECK(row->second.source.origin.size() > 20);
    }
    // FSDP reduces what it casts, and so its profiles say the type; others may differ in products alone.
    if (bytes.memory != bytes.reduced) {
      const FrameworkProfile profile = read_framework_profile(data_file("profiles", name));
      TomlTable scenario_keys = profile.scenario, overlap = scenario_keys.section("overlap");
      CHECK(overlap.has("grad_reduce_in_fp32"));
    }
  }
  const std::string bf16 = "[overlap]\ngrad_reduce_in_fp32 = false\n", f32 = "[overlap]\ngrad_reduce_in_fp32 = true\n";
  for (const char* of_ddp : {"nemo-dgxc", "nemo-fp32-grads", "megatron-bridge", "megatron-bridge-moe-library",
                             "megatron-core-te", "megatron-core-te-bf16-grads"}) {
    CAPTURE(of_ddp);
    CHECK(gradient_bytes(parse_scenario(scenario_with(of_ddp, bf16), "s")) == GradientBytes{2, 2, 2});
    const Scenario in_f32 = parse_scenario(scenario_with(of_ddp, f32), "s");
    CHECK(gradient_bytes(in_f32) == GradientBytes{4, 4, 4});
    CHECK(in_f32.framework.element_bytes.at("fill").value == 12);
    CHECK(gradient_bytes(parse_scenario(scenario_with(of_ddp, "[training]\nprecision = \"fp32\"\n"), "s")).reduced ==
          4);
  }
  CHECK(gradient_bytes(parse_scenario(scenario_with("nemo-dgxc"), "s")) == GradientBytes{2, 2, 2});
  CHECK(gradient_bytes(parse_scenario(scenario_with("nemo-fp32-grads"), "s")) == GradientBytes{4, 4, 4});
}

}  // namespace stretto
