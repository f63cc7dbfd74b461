#include "validate/validate.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/data_folder.hpp"
#include "predict/constants.hpp"
#include "tests/cases.hpp"
#include "tests/temp_dir.hpp"
#include "validate/validation_page.hpp"
#include "validate/validation_tables.hpp"

namespace stretto::validate {
namespace {

using testing::TempDir;
const char* const kHeader =
    "id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,gbs,mbs,tp,pp,vp_chunks,cp,ep,dp,"
    "precision,recompute,framework,step_time_s,caveat,task,cluster\n";

// Two small models on eight GPUs. The times are invented: the tests set them.
std::vector<PublishedStep> two_models(double first_s, double second_s) {
  const TempDir dir;
  const auto row = [](const char* id, int hidden, double time_s) {
    return std::string(id) + ",x,A100,8,GPT," + "4," + std::to_string(hidden) +
           ",16,16,,,1024,8,1,2,2,1,1,1,2,fp16,full,Megatron-DeepSpeed," + std::to_string(time_s) + ",,pretrain," + id +
           "\n";
  };
  return read_published(
      dir.write("steps.csv", kHeader + row("<b>small", 1024, first_s) + row("large", 2048, second_s)));
}

}  // namespace

TEST_CASE("constants of a step are those of its profile before those of the platform", "[compare]") {
  sim::Accelerator accelerator;
  accelerator.hbm_share.value = 0.8;
  Framework framework;
  accelerator.attention.emplace_back();
  framework.hbm_share = Quantity{0.7, {"fitted", "", 0}, 0.6, 0.8};
  bool seen = false;
  for (const predict::Constant& constant : predict::constants_of(accelerator, framework)) {
    CHECK(constant.name != "accelerator.hbm_share");
    if (constant.name != "kernels.hbm_share") continue;
    seen = true;
    CHECK(constant.quantity == &*framework.hbm_share);
    CHECK((constant.is_fitted() && constant.has_interval()));
  }
  CHECK(seen);
}

TEST_CASE("a network that a row states takes the place of the platform's", "[compare]") {
  const TempDir dir;
  const auto row = [](const char* id, const char* caveat) {
    return std::string(id) + ",x,A100,16,GPT,4,2048,16,16,,,1024,16,1,8,1,1,1,1,2,fp16,full,Megatron-LM 2022,1," +
           caveat + ",pretrain," + id + "\n";
  };
  const Validation validation =
      validate(read_published(dir.write("steps.csv", kHeader + row("stated", "inter-node 200 Gb/s") +
                                                         row("same", "inter-node 1600 Gb/s") + row("none", ""))));
  REQUIRE(validation.groups.size() == 1);
  const auto predicted = [&](int step) { return validation.steps[std::size_t(step)].predicted(Fitted::shipped); };
  CHECK(predicted(0) > 1.05 * predicted(1));
  CHECK(predicted(1) == predicted(2));
}

TEST_CASE("intervals come from the constants' own, and hold the prediction", "[compare]") {
  const Validation validation = validate(two_models(0.1, 0.2), {.intervals = true});
  REQUIRE(validation.groups.size() == 1);
  for (const ValidatedStep& step : validation.steps) {
    CHECK(step.low_s() < step.predicted(Fitted::shipped));
    CHECK(step.high_s() > step.predicted(Fitted::shipped));
    REQUIRE(!step.spread.shares.empty());
    double square = 0;
    for (const auto& [name, share] : step.spread.shares) {
      square += share * share;
      CHECK(name != "accelerator.gemm_share");  // there is a table instead
    }
    // Both directions together are as wide as all constants together, where each moves the step evenly.
    CHECK(step.spread.up + step.spread.down == Approx(2 * std::sqrt(square)).epsilon(0.2));
    // These steps are so short that the host dominates.
    CHECK(step.spread.shares.front().first == "host.issue_us");
  }
  CHECK(validation.groups[0].half_width > 0.02);
  CHECK(table_of_intervals(validation).rows() == 2);
  CHECK(table_of_intervals(validate(two_models(0.1, 0.2))).rows() == 0);
}

TEST_CASE("a model that is left out is predicted by constants fitted to the other", "[compare]") {
  const Validation shipped = validate(two_models(1, 1));
  const double small_s = shipped.steps[0].predicted(Fitted::shipped),
               large_s = shipped.steps[1].predicted(Fitted::shipped);
  // Both ran 5 % slower than predicted: each one predicts that for the other.
  const Validation validation = validate(two_models(1.05 * small_s, 1.05 * large_s), {.leave_out = true});
  const ValidatedGroup& group = validation.groups[0];
  REQUIRE(group.left_out.size() == 2);
  CHECK(group.left_out[0].hidden_size == 1024);
  CHECK(group.left_out[0].fitted_to == 1);
  CHECK(group.errors[2].mean_abs == Approx(0.05 / 1.05).epsilon(0.01));
  CHECK(group.left_out_errors.mean_abs < 0.03);
  for (const LeftOut& left_out : group.left_out)
    for (const Refitted& constant : left_out.constants) CHECK(constant.name != "accelerator.gemm_sustained");
  const Validation again = validate(two_models(1.05 * small_s, 1.05 * large_s), {.leave_out = true});
  CHECK(again.steps[0].left_out_s == validation.steps[0].left_out_s);
  CHECK(table_of_left_out(validation).rows() == 2);
}

TEST_CASE("the page of a validation shows its points and tables, and names are text", "[compare]") {
  const std::string html = render_validation(validate(two_models(0.1, 0.2), {.intervals = true}), "a&b.csv");
  for (const char* text : {"<section id=\"steps\">", "<section id=\"groups\">", "<section id=\"intervals\">",
                           "a&amp;b.csv", "&lt;b&gt;small", "</html>"})
    CHECK(html.find(text) != std::string::npos);
  CHECK(html.find("<b>small") == std::string::npos);
  CHECK(render_validation({}, "none.csv").find("</html>") != std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // takes half a minute under a sanitizer
TEST_CASE("published peaks of memory are predicted as docs/validate.md says", "[memory]") {
  const std::filesystem::path scenarios =
      std::filesystem::path(data_file("profiles", "stretto")).parent_path().parent_path();
  std::vector<PublishedStep> steps = read_published((scenarios / "published_memory.csv").string());
  CHECK(steps.size() == 31);
  std::erase_if(steps, [](const PublishedStep& step) { return !step.id.ends_with("_mbc4_cef"); });
  const Validation validation = validate(std::move(steps));
  for (const ValidatedStep& step : validation.steps) {
    INFO(step.published.id << ": " << 100 * step.memory_error() << " % " << step.published.skipped);
    CHECK(step.published.skipped.empty());
    CHECK(std::abs(step.memory_error()) < 0.08);
    CHECK_FALSE(step.is_wrongly_over());
  }
  REQUIRE(validation.groups.size() == 1);
  CHECK(validation.groups.front().memory_rows == validation.steps.size());
  CHECK(validation.groups.front().memory.mean_abs < 0.03);
  CHECK_THAT(table_of_memory(validation).text(), Catch::Contains("0 of 15"));
}

// For each of the frameworks' models this takes the step on the fewest GPUs, which is built quickly. Any change of a
// prediction shows here, because the bounds are narrow. (llm-foundry's rows are left out: its models differ by up to 28
// %.)
TEST_CASE("published steps of each model are predicted as docs/validate.md says", "[compare]") {
  const std::filesystem::path scenarios =
      std::filesystem::path(data_file("profiles", "stretto")).parent_path().parent_path();
  std::map<std::string, PublishedStep> smallest;
  for (PublishedStep& step : read_published((scenarios / "published.csv").string())) {
    const auto [at, is_new] = smallest.try_emplace(step.framework + step.model + step.gpu, step);
    if (!is_new && step.gpus < at->second.gpus) at->second = step;
  }
  std::vector<PublishedStep> steps;
  testing::Cases cases;
  for (auto& [of, step] : smallest)
    if (step.gpus <= 256 && !step.framework.starts_with("llm-foundry") && cases.takes_next())
      steps.push_back(std::move(step));
  const std::size_t taken = steps.size();
  std::size_t modelled = 0;
  for (const ValidatedStep& step : validate(std::move(steps)).steps) {
    const std::string& framework = step.published.framework;
    INFO(step.published.id << ", " << framework << ": " << 100 * step.error(Fitted::shipped) << " % "
                           << step.published.skipped);
    CHECK(step.published.skipped.empty());
    ++modelled;
    const double bound = step.published.id.ends_with("megascale-256") ? 0.08
                         : framework == "Megatron-LM 2022"            ? 0.03
                         // One micro-batch of small layers waits for its host; on GB200 the host's speed is not known.
                         : step.published.id.starts_with("moonlight")                             ? 0.35
                         : step.published.id.ends_with("gb200") && framework == "Megatron-Bridge" ? 0.25
                         : framework.starts_with("Aleph Alpha")                                   ? 0.15
                         : framework.starts_with("NeMo")                                          ? 0.07
                         : framework == "Megatron-Bridge" && step.published.precision != "bf16"   ? 0.015  // fitted
                         : framework.starts_with("torchtitan")                                    ? 0.12
                         // Eager element-wise kernels concurrent with gathers across nodes lose little by the memory's rate.
                         : framework.starts_with("fms-fsdp")           ? 0.14
                         : framework.starts_with("Megatron-DeepSpeed") ? 0.22
                         : step.published.id.starts_with("zb-")        ? 0.08
                                                                       : 0.06;
    CHECK(std::abs(step.error(Fitted::shipped)) < bound);
    // Its fragmentation exceeds the free memory by 2.5 GiB; whether it set an allocator is not known.
    if (step.published.id != "fms-7b-h100-eager") CHECK_FALSE(step.is_wrongly_over());
    if (step.published.hbm_GiB > 0) CHECK(std::abs(step.memory_error()) < 0.08);
  }
  CHECK(modelled == taken);
  CHECK((taken == 53 || !testing::is_soak()));
}
#endif

}  // namespace stretto::validate
