#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/shell.hpp"
#include "cli/search_layouts.hpp"
#include "habits/model_names.hpp"
#include "habits/question.hpp"
#include "model/scenario/overrides.hpp"
#include "model/scenario/reader.hpp"
#include "sweep/names.hpp"

namespace stretto::cli {
namespace {

struct PlanOptions : SweepOptions {
  std::string model, profile, precision;
  const habits::ModelName* known = nullptr;  // the model's name; nullptr: it is a config.json
  std::int64_t gpus = 0, global_batch = 0, sequence = 0;
};

constexpr const char* kDenseProfile = "nemo-dgxc";  // where no other is named

// Adds keys, one "key = value" a line, to a section.
void add_keys(const std::string& keys, std::map<std::string, std::string>& section) {
  for (std::size_t at = 0; at < keys.size();) {
    const std::size_t end = keys.find('\n', at), equals = keys.find(" = ", at);
    section[keys.substr(at, equals - at)] = keys.substr(equals + 3, end - equals - 3);
    at = end + 1;
  }
}

// Returns the scenario of `plan` with settings, "section.key=value" each; a later one replaces an earlier one.
std::string planned_text(const PlanOptions& options, const std::vector<std::string>& set, const std::string& platform) {
  std::map<std::string, std::map<std::string, std::string>> sections;  // [section][key] value in TOML
  std::string name = options.known == nullptr ? "plan" : options.known->name;
  auto& model = sections["model"];
  if (options.known != nullptr)
    add_keys(habits::keys_of_model(*options.known), model);
  else
    model["hf_config"] = std::filesystem::absolute(options.model).string();
  if (options.sequence > 0) model["seq_length"] = std::to_string(options.sequence);
  for (const std::string& one : set) {
    const std::size_t dot = one.find('.'), equals = one.find('=');
    if (dot < equals) sections[one.substr(0, dot)][one.substr(dot + 1, equals - dot - 1)] = one.substr(equals + 1);
    if (one.starts_with("name=")) name = one.substr(equals + 1);
  }
  // The scenario may be written to another folder.
  const auto anywhere = [](const std::string& file) {
    return is_data_name(file) ? file : std::filesystem::absolute(file).string();
  };
  std::string text = fmt::format("name = \"{}\"\nplatform = \"{}\"\nprofile = \"{}\"\n", name, anywhere(platform),
                                 anywhere(options.profile));
  for (const auto& [section, keys] : sections) {
    text += fmt::format("\n[{}]\n", section);
    for (const auto& [key, value] : keys) {
      const bool is_bare = value == "true" || value == "false" ||
                           value.find_first_not_of("0123456789.-+eE") == std::string::npos || value.starts_with('[') ||
                           value.starts_with('"');
      text += is_bare ? fmt::format("{} = {}\n", key, value) : fmt::format("{} = \"{}\"\n", key, value);
    }
  }
  return text;
}

// Throws where an axis or an override says otherwise than an option of `plan`.
void require_no_contradiction(const PlanOptions& options) {
  const auto has_value = [](const std::string& values, std::int64_t wanted) {
    const std::string all = "," + values + ",";
    return values == "legal" || all.find("," + std::to_string(wanted) + ",") != std::string::npos;
  };
  for (const auto& [option, key, number] :
       {std::tuple("--gpus", "gpus", options.gpus),
        std::tuple("--global-batch", "training.global_batch_size", options.global_batch),
        std::tuple("--seq-length", "model.seq_length", options.sequence)}) {
    if (number == 0) continue;
    const std::string begin = std::string(key) + "=", alone = begin.substr(begin.find('.') + 1);
    for (const std::string& over : options.over)
      for (const std::string& name : {begin, alone})
        if (over.starts_with(name) && !has_value(over.substr(name.size()), number))
          throw input_error(fmt::format("--over {}: expected {} among the values, which {} says, got {}",
                                        name.substr(0, name.size() - 1), number, option,
                                        in_quotes(over.substr(name.size()))));
    for (const std::string& set : options.set)
      if (set.starts_with(begin) && set != begin + std::to_string(number))
        throw input_error(fmt::format("--set {}: expected {}, which {} says, got {}", key, number, option,
                                      in_quotes(set.substr(begin.size()))));
  }
}

// Throws where an override says what `plan` does not read as a key of its scenario.
void require_searched(const std::vector<std::string>& set) {
  for (const std::string& one : set) {
    const std::string key = one.substr(0, one.find('='));
    if (key.starts_with("sweep."))
      throw input_error(fmt::format("--set {}: expected --over {} in its place", key, key.substr(6)));
    if (key == "model.preset" || key == "model.hf_config")
      throw input_error(fmt::format("--set {}: the model is MODEL, which plan is given", key));
    if (key == "platform" || key == "profile")
      throw input_error(fmt::format("--set {}: expected --{} in its place", key, key));
    if (key.starts_with("run."))
      throw input_error(
          fmt::format("--set {}: plan compares steps; simulate the scenario that -o writes for a run", key));
  }
}

// Returns the settings that the search does not vary, of the recipe for the model, and says so; sets the profile and
// the batch that nobody named.
std::vector<std::string> start_from_recipe(PlanOptions& options) {
  std::vector<std::string> set;
  if (options.known != nullptr) {
    habits::Question question;
    question.model = options.model;
    question.gpus = options.gpus;
    question.platform = options.platform;
    question.profile = options.profile;
    question.precision = options.precision;
    question.seq_length = options.sequence;
    const habits::Start start = habits::start_of_search(question);
    if (options.global_batch == 0) {
      options.global_batch = start.batch;
      options.assumed += fmt::format("assumed: --global-batch {}, {}\n", start.batch,
                                     start.profile.empty() ? "about 4 million tokens a step"
                                                           : "as many sequences a GPU as in recipe " + start.recipe);
    }
    if (!start.profile.empty()) {
      options.profile = start.profile;
      std::string words;
      for (const habits::Assumed& one : start.assumed) {
        set.push_back(one.key + "=" + one.value);
        words += (words.empty() ? "" : ", ") + one.key.substr(one.key.find('.') + 1) + " " + one.value;
      }
      options.assumed += fmt::format(
          "assumed: profile {} and, as recipe {} of Megatron-Bridge has them: {}\nnot searched, --set says otherwise: "
          "dispatcher of experts, pairs of passes, precision, CUDA graphs, recompute_modules\n\n",
          start.profile, start.recipe, words.empty() ? "none" : words);
    }
  }
  if (options.global_batch == 0) throw input_error("--global-batch: expected the sequences of a step, got none");
  if (options.profile.empty()) options.profile = kDenseProfile;
  return set;
}

void plan_command(PlanOptions& options) {
  if (!std::filesystem::exists(options.model)) options.known = habits::model_named(options.model);
  if (options.known == nullptr && !std::filesystem::exists(options.model)) {
    const std::string nearest = habits::nearest_model(options.model);
    throw input_error(
        "MODEL: expected a model that `stretto list models` names or a config.json of Hugging Face's, got " +
        in_quotes(options.model) + (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }
  const std::vector<std::string> of_recipe = start_from_recipe(options);
  // Before the sweep gives a layout, the scenario has as many replicas as divide GPUs and batch.
  std::vector<std::string> set = {
      fmt::format("parallel.data_parallel_size={}", std::gcd(options.gpus, options.global_batch)),
      fmt::format("training.global_batch_size={}", options.global_batch)};
  set.insert(set.end(), of_recipe.begin(), of_recipe.end());
  require_no_contradiction(options);
  require_searched(options.set);
  ask::Swept swept;
  swept.text_of = [&](const std::vector<std::string>& further, const std::string& platform) {
    std::vector<std::string> all = set;
    all.insert(all.end(), options.set.begin(), options.set.end());
    all.insert(all.end(), further.begin(), further.end());
    return planned_text(options, all, platform.empty() ? options.platform : platform);
  };
  // Experts have a framework of their own, which cuts none of them.
  const Transformer model = parse_scenario(planned_text(options, set, options.platform), "plan", options.set).model;
  if (model.experts.any()) {
    if (options.profile == kDenseProfile && of_recipe.empty()) options.profile = "megatron-bridge-moe";
    set.insert(set.begin(), "parallel.expert_tensor_parallel_size=1");
  }
  swept.text = swept.text_of({}, "");
  // Keys of the user's are read as overrides, because errors name their place.
  const ScenarioReader reader = ScenarioReader::of_text(planned_text(options, set, options.platform), "plan");
  swept.read = [&](const std::vector<std::string>& further, const std::string& platform) {
    std::vector<std::string> all = options.set;
    all.insert(all.end(), further.begin(), further.end());
    all.push_back("platform=" + platform);
    return reader.read(all);
  };
  swept.axes = [&] { return parse_toml("", "plan").section("sweep"); };
  if (!options.winner.empty()) swept.command = "stretto simulate " + in_shell(options.winner.name());
  if (std::none_of(options.over.begin(), options.over.end(),
                   [](const std::string& o) { return o.rfind("gpus=", 0) == 0; }))
    options.over.push_back("gpus=" + std::to_string(options.gpus));
  if (std::none_of(options.over.begin(), options.over.end(), sweep::says_layouts)) {
    options.over.emplace_back("layout=legal");
    if (model.experts.any())
      options.over.push_back(fmt::format("etp={}", parse_scenario(swept.text, "plan").parallel.expert_tp()));
  }
  search_layouts(options, std::move(swept));
}

}  // namespace

void add_plan(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  options->platform = "h100-sxm";
  CLI::App* command = app.add_subcommand("plan", "the best layout of a model on a number of GPUs");
  command->add_option("MODEL", options->model, "a model (`stretto list models`), or a config.json")->required();
  command->add_option("--gpus", options->gpus, "number of GPUs")->required()->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--global-batch", options->global_batch,
                   "sequences of a step; default: as many a GPU as in the model's recipe")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--seq-length", options->sequence, "tokens of a sequence; default: the model's")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option(
      "--profile", options->profile,
      "the framework (`stretto list profiles`); default: that of the model's recipe, else nemo-dgxc, with "
      "experts megatron-bridge-moe");
  command->add_option("--precision", options->precision, "of the recipe to start from; default: bf16")
      ->check(CLI::IsMember({"bf16", "fp8_cs", "fp8_ds", "fp8_sc", "fp8_mx", "nvfp4"}));
  command->add_option("--set", options->set, "override a key (repeatable)")
      ->transform([](const std::string& given) { return full_setting(given); })
      ->allow_extra_args(false);
  options->files.add_input(*command, "--platform", options->platform, "platform (docs/platform.md); default: h100-sxm");
  add_search_options(*command, *options);
  options->files.add_output(*command, "-o,--output", options->winner,
                            "write the best as a scenario: most tokens per GPU-second");
  command->callback([options, command] {
    options->names_platform = command->count("--platform") > 0;
    plan_command(*options);
  });
}

}  // namespace stretto::cli
