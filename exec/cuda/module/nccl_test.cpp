// Tests of ranks in processes of their own, with a fake NCCL between threads (tests/fake_cuda/nccl.h).
#include "tests/fake_cuda/nccl.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/fake_cuda/cuda_runtime.h"
#include "tests/on_fake_gpu.hpp"
#include "tests/small_mixture.hpp"
#include "tests/training.hpp"

namespace stretto::testing {

TEST_CASE("ranks in processes of their own, by NCCL: the same bits as on a shared device, in every mode",
          "[cuda][processes]") {
  Cases cases;
  bool graphs = false;
  for (const Layout& layout :
       {Layout{2, 1}, Layout{1, 2, true}, Layout{1, 3, true}, Layout{1, 1, false, 2}, Layout{1, 1, false, 2, 2},
        Layout{1, 1, false, 3}, Layout{.cp = 2}, Layout{.cp = 3}, Layout{.cp = 2, .cp_type = {CpCommType::a2a}}})
    for (const OverlapMode& mode : overlap_modes()) {
      if (layout.cp > 1 && mode.name != "plain" && !mode.name.starts_with("cp_")) continue;
      // A ring of three is tested only for its messages, which are then not between two ranks.
      if (layout.tp == 3 && mode.name != "tp_comm_ring_exchange") continue;
      Scenario scenario = layout_scenario(layout, mode.name, false, "fp32", 1, layout.dp * layout.pp * layout.vp);
      scenario.model.num_layers = layout.pp * layout.vp;
      if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
      graphs = !graphs;
      INFO(layout.text() << ", " << mode.name << ", graphs " << graphs);
      Trained apart;
      const std::vector<std::string> errors =
          as_processes(scenario.parallel.ranks(), 60, [&](launch::ProcessGroup& group) {
            OnFakeGpu rank(scenario, graphs, &group);
            Trained trained = rank.train(2, &group);
            group.barrier();
            if (group.rank() == 0) apart = std::move(trained);
          });
      for (const std::string& error : errors) CHECK(error.empty());
      const Trained together = OnFakeGpu(scenario, !graphs).train(2);
      CHECK(apart.losses == together.losses);
      CHECK(same_bits(apart.gradients, together.gradients));
      CHECK(same_bits(apart.parameters, together.parameters));
      CHECK(fake_nccl::live() == 0);
    }
  CHECK(fake_nccl::aborted() == 0);
  // The device has two processors, a rank of three stages has eight communicators, and each has at least one block.
  CHECK(fake_nccl::most_ctas() <= 8);
}

TEST_CASE("experts in processes of their own, by NCCL: the same bits as on a shared device", "[cuda][processes]") {
  struct Case {
    Layout layout;
    std::int64_t ep = 1;
    Mixture mixture = Mixture::softmax;
    const char* mode = "plain";
    bool pads = false, gathers = false;
  };
  const Case cases[] = {
      {{2, 1}, 2},
      {{4, 1}, 4, Mixture::sigmoid},
      {{1, 2, true}, 2, Mixture::latent},
      {{2, 2, true}, 4, Mixture::sigmoid, "overlap_grad_reduce"},
      {{2, 1}, 2, Mixture::softmax, "plain", true},
      {{4, 1}, 2, Mixture::softmax, "plain", false, true},
      {{2, 1}, 2, Mixture::sigmoid, "overlap_moe_expert_parallel_comm"},
      {{4, 1}, 4, Mixture::softmax, "delay_wgrad_compute", true},
      {{2, 1, false, 2}, 2, Mixture::sigmoid},
  };
  Cases taken;
  for (const Case& c : cases) {
    if (!taken.takes_next()) continue;
    Scenario scenario = small_mixture(c.layout, c.ep, c.mixture, c.mode);
    if (c.pads) pad_experts(scenario);
    if (c.gathers) scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
    INFO(c.layout.text() << ", ep " << c.ep << ", " << c.mode << (c.pads ? ", padded" : c.gathers ? ", gathers" : ""));
    Trained apart;
    const std::vector<std::string> errors =
        as_processes(scenario.parallel.ranks(), 60, [&](launch::ProcessGroup& group) {
          OnFakeGpu rank(scenario, true, &group);
          Trained trained = rank.train(2, &group);
          group.barrier();
          if (group.rank() == 0) apart = std::move(trained);
        });
    for (const std::string& error : errors) CHECK(error == "");
    const Trained together = OnFakeGpu(scenario, true).train(2);
    CHECK(apart.losses == together.losses);
    CHECK(same_bits(apart.gradients, together.gradients));
    CHECK(same_bits(apart.parameters, together.parameters));
    CHECK(fake_nccl::live() == 0);
  }
}

TEST_CASE("more rows than experts have room for are one error on all ranks", "[cuda][processes]") {
  const auto errors_of = [](const Scenario& scenario) {
    return as_processes(scenario.parallel.ranks(), 60, [&](launch::ProcessGroup& group) {
      OnFakeGpu rank(scenario, true, &group);
      rank.train(2, &group);
      group.barrier();
    });
  };
  Scenario scenario = small_mixture({2, 1}, 2, Mixture::softmax);
  scenario.parallel.moe_expert_rank_capacity_factor = 1;
  for (const std::string& error : errors_of(scenario))
    CHECK_THAT(error, Catch::Contains("rows, and moe_expert_rank_capacity_factor leaves room for"));
  scenario = small_mixture({2, 1}, 2, Mixture::softmax);
  pad_experts(scenario, 0.3);
  for (const std::string& error : errors_of(scenario))
    CHECK_THAT(error, Catch::Contains("rows, and moe_expert_capacity_factor leaves room for"));
  CHECK(fake_nccl::live() == 0);
}

TEST_CASE("communicators without channels of their own leave half of the device to compute", "[cuda][processes]") {
  fake_cuda::Device& device = fake_cuda::device();
  device.sms = 24;
  unsetenv("NCCL_GRAPH_REGISTER");
  Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "fp32", 1, 2);
  scenario.model.num_layers = 1;
  const auto open = [&] {
    std::vector<std::string> notes;
    for (const std::string& error : as_processes(2, 60, [&](launch::ProcessGroup& group) {
           const OnFakeGpu rank(scenario, false, &group);
           if (group.rank() == 0) notes = rank.executor->notes();
           group.barrier();
         }))
      CHECK(error.empty());
    return notes;
  };
  fake_nccl::most_ctas();
  const int clustered = fake_nccl::clustered();
  open();
  const int ctas = fake_nccl::most_ctas();
  CHECK(ctas <= 12);
  CHECK(ctas > 12 / 2);  // blocks are divided, and not one each
  CHECK(fake_nccl::clustered() == clustered);
  CHECK(std::string(getenv("NCCL_GRAPH_REGISTER")) == "0");
  // Given channels take precedence, in clusters of NCCL's choice; the user's own setting stays.
  setenv("NCCL_GRAPH_REGISTER", "1", 1);
  scenario.cluster.max_ctas["dp"] = 20;
  open();
  CHECK(fake_nccl::most_ctas() >= 20);
  CHECK(fake_nccl::clustered() > clustered);
  CHECK(std::string(getenv("NCCL_GRAPH_REGISTER")) == "1");
  unsetenv("NCCL_GRAPH_REGISTER");
  device.sms = 2;
}

TEST_CASE("a rank that is lost, or does not come, aborts NCCL everywhere", "[cuda][processes]") {
  Scenario scenario = layout_scenario(Layout{3, 1}, "overlap_grad_reduce", false, "fp32", 1, 3);
  scenario.model.num_layers = 1;
  const int timeout_s = kCaseStride > 1 ? 15 : 3;  // emulated steps are slow in a sanitizer's build
  scenario.training.timeout_s = timeout_s;
  for (const auto& [says_so, graphs] : {std::pair{true, false}, std::pair{false, true}}) {
    const int before = fake_nccl::aborted();
    const std::vector<std::string> errors = as_processes(3, 60, [&](launch::ProcessGroup& group) {
      OnFakeGpu rank(scenario, graphs, &group);
      exec::initialise_state(rank.schedule, scenario, rank.memory_of());
      rank.executor->upload(exec::Executor::Contents::all);
      rank.executor->run(1);
      rank.executor->run(1);  // captured
      group.barrier();
      if (group.rank() == 1) {
        if (says_so) group.fail("the power failed");
        std::this_thread::sleep_for(std::chrono::seconds(says_so ? 0 : timeout_s + 3));
        return;
      }
      rank.executor->run(1);
    });
    for (const std::size_t rank : {0, 2}) {
      INFO(errors[rank]);
      if (says_so)
        CHECK_THAT(errors[rank], Catch::Contains("rank 1: the power failed"));
      else
        CHECK_THAT(errors[rank], Catch::Contains("has not finished its step after"));
    }
    CHECK(fake_nccl::aborted() > before);
    CHECK(fake_nccl::hung() == 0);
    CHECK(fake_nccl::live() == 0);
  }
}

TEST_CASE("a launch that is refused says on which rank", "[cuda][processes]") {
  const Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "fp32", 1, 2);
  const std::vector<std::string> errors = as_processes(2, 20, [&](launch::ProcessGroup& group) {
    OnFakeGpu rank(scenario, false, &group);
    if (group.rank() == 1) fake_cuda::keep(cudaErrorMemoryAllocation);
    rank.executor->run(1);
  });
  for (const std::string& error : errors) CHECK_THAT(error, Catch::StartsWith("rank 1: ") && Catch::Contains("launch"));
}

namespace {

// Rank 0's notes, the errors of all ranks, and the training results.
struct Apart {
  std::vector<std::string> notes, errors;
  Trained trained;
  bool says(const std::string& text) const {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const std::string& note) { return note.find(text) != std::string::npos; });
  }
};
Apart train_apart(const Scenario& scenario, bool graphs = true) {
  Apart apart;
  apart.errors = as_processes(scenario.parallel.ranks(), 60, [&](launch::ProcessGroup& group) {
    OnFakeGpu rank(scenario, graphs, &group);
    Trained trained = rank.train(2, &group);
    group.barrier();
    if (group.rank() != 0) return;
    apart.trained = std::move(trained);
    apart.notes = rank.executor->notes();
  });
  return apart;
}
void check_same(const Apart& apart, const Scenario& scenario) {
  for (const std::string& error : apart.errors) CHECK(error.empty());
  const Trained together = OnFakeGpu(scenario).train(2);
  CHECK(apart.trained.losses == together.losses);
  CHECK(same_bits(apart.trained.parameters, together.parameters));
}
// On its ranks dp has reduce-scatters and all-gathers.
Scenario registering() {
  Scenario scenario = layout_scenario(Layout{2, 1}, "overlap_param_gather", false, "fp32", 1, 2);
  scenario.model.num_layers = 1;
  scenario.cluster.nccl_ub = true;
  return scenario;
}

}  // namespace

TEST_CASE("nccl_ub: the arena is NCCL's and registered where its members have equal arenas, and freed after that",
          "[cuda][processes]") {
  fake_nccl::registered();
  Cases cases;
  for (const Layout& layout : {Layout{2, 1}, Layout{1, 2, true}, Layout{.cp = 2}, Layout{2, 1, false, 2}}) {
    if (!cases.takes_next()) continue;
    Scenario scenario = layout_scenario(layout, "plain", false, "fp32", 1, layout.dp * layout.pp);
    scenario.model.num_layers = layout.pp;
    scenario.cluster.nccl_ub = true;
    INFO(layout.text());
    const Apart apart = train_apart(scenario);
    check_same(apart, scenario);
    const fake_nccl::Registered registered = fake_nccl::registered();
    CHECK(registered.windows >= scenario.parallel.ranks());
    CHECK(registered.buffers == 0);
    CHECK(registered.live == 0);
    CHECK(registered.freed_too_early == 0);
    CHECK(registered.apart == 0);
    CHECK(registered.by_copy_engine == 0);
    // Stages have plans of their own.
    CHECK(apart.says("are not registered: their ranks have them in different places") == (layout.pp > 1));
  }
  CHECK(fake_nccl::live() == 0);
  CHECK(fake_cuda::device().used_bytes == 0);
}

TEST_CASE("nccl_ub with an older NCCL: registered without windows, or an error that names rank and call",
          "[cuda][processes]") {
  const Scenario scenario = registering();
  fake_nccl::registered();
  fake_nccl::be(22602);
  const Apart apart = train_apart(scenario);
  check_same(apart, scenario);
  fake_nccl::Registered registered = fake_nccl::registered();
  CHECK(registered.windows == 0);
  CHECK(registered.buffers == 2);
  CHECK(registered.live == 0);
  CHECK(apart.says("NCCL 2.26.2 is there, and 2.27 is the first that has symmetric windows"));
  fake_nccl::be(21805);
  for (const std::string& error : train_apart(scenario).errors)
    CHECK_THAT(error, Catch::Contains("cluster.nccl_ub needs NCCL 2.19 or later (ncclMemAlloc); 2.18.5 is there"));
  Scenario without = scenario;
  without.cluster.nccl_ub = false;
  check_same(train_apart(without), without);
  fake_nccl::be(21600);
  CHECK_THAT(train_apart(without).errors.front(),
             Catch::Contains("NCCL 2.16.0 is installed; expected 2.17.0 or a later 2.x"));
  fake_nccl::be(NCCL_VERSION_CODE);
  // The memory does not suffice, in NCCL's words: the error comes after the executor's own check.
  CHECK(fake_nccl::registered().live == 0);
  CHECK(fake_cuda::device().used_bytes == 0);
  // Ranks that share the GPU do not use NCCL.
  const OnFakeGpu shared(scenario);
  const std::vector<std::string> notes = shared.executor->notes();
  CHECK(std::any_of(notes.begin(), notes.end(),
                    [](const std::string& note) { return note.starts_with("cluster.nccl_ub is off"); }));
}

TEST_CASE("a registration that NCCL refuses says on which rank, and for what communicator", "[cuda][processes]") {
  Scenario scenario = registering();
  fake_nccl::refuse_registration(1);
  const std::vector<std::string> errors = train_apart(scenario).errors;
  CHECK(std::any_of(errors.begin(), errors.end(), [](const std::string& error) {
    return error.starts_with("rank ") && error.find("NCCL, communicator ") != std::string::npos &&
           error.find(": ncclCommWindowRegister: ") != std::string::npos;
  }));
  CHECK(fake_nccl::registered().live == 0);
  CHECK(fake_nccl::live() == 0);
}

TEST_CASE("what the schedule has on copy engines NCCL moves by those, or it is said why not", "[cuda][processes]") {
  Scenario scenario = registering();
  scenario.cluster.zero_cta_groups = {"dp"};
  fake_nccl::registered();
  const auto copied = [&](const std::string& note) {
    const Apart apart = train_apart(scenario);
    check_same(apart, scenario);
    CHECK(apart.says(note));
    CHECK(apart.says("is not on copy engines") == !note.empty());
    return fake_nccl::registered().by_copy_engine;
  };
  CHECK(copied("") > 0);
  fake_nccl::be(22705);
  CHECK(copied("communicator dp.copy is not on copy engines, its kernels take SMs: NCCL 2.27.5 is there, and 2.28") ==
        0);
  fake_nccl::be(NCCL_VERSION_CODE);
  fake_cuda::device().driver_version = 12040;
  CHECK(copied("CUDA's driver must be of 12.5 or later") == 0);
  fake_cuda::device().driver_version = 13000;
  // All-to-alls are then one call.
  scenario = layout_scenario(Layout{.cp = 2, .cp_type = {CpCommType::a2a}}, "plain", false, "fp32", 1, 1);
  scenario.model.num_layers = 1;
  scenario.cluster.nccl_ub = true;
  scenario.cluster.zero_cta_groups = {"cp"};
  CHECK(copied("") > 0);
  // A ring has messages.
  scenario = layout_scenario(Layout{1, 2, true}, "tp_comm_ring_exchange", false, "fp32", 1, 1);
  scenario.model.num_layers = 1;
  CHECK(copied(
            "communicator tp.ring is not on copy engines, its kernels take SMs: NCCL has no messages by copy engine") ==
        0);
}

}  // namespace stretto::testing
