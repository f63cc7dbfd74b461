#include "habits/question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "base/toml_text.hpp"
#include "habits/first_layout.hpp"
#include "habits/model_names.hpp"
#include "habits/recipes.hpp"
#include "model/framework_profile.hpp"
#include "model/scenario.hpp"

namespace stretto::habits {
namespace {

constexpr const char* kRecipes = "scenarios/bridge_recipes.csv, NVIDIA-NeMo/Megatron-Bridge@067f987d";

const ModelName& model_of(const std::string& name) {
  if (const ModelName* model = model_named(name)) return *model;
  const std::string nearest = nearest_model(name);
  throw input_error("MODEL: expected a model that `stretto list models` names, got " + in_quotes(name) +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

std::string in_toml(const std::string& value) {
  try {
    parse_toml_nodes("x = " + value + "\n", "--set");
    return value;
  } catch (const Error&) {
    return "\"" + value + "\"";
  }
}

class Asked {
 public:
  explicit Asked(const Question& question)
      : q_(question), model_(model_of(question.model)), platform_(q_.platform.empty() ? "h100-sxm" : q_.platform) {
    for (const std::string& one : q_.set) {
      const std::size_t equals = one.find('=');
      if (one.find('.') < equals) set_.push_back(one);
    }
    if (q_.global_batch > 0) set_.push_back(fmt::format("training.global_batch_size={}", q_.global_batch));
    if (q_.seq_length > 0) set_.push_back(fmt::format("model.seq_length={}", q_.seq_length));
  }

  Answer run() {
    made_.model = model_.name;
    made_.name = fmt::format("{} on {} GPUs", model_.name, q_.gpus);
    made_.platform = platform_;
    made_.profile = released_profile(q_.profile);
    if (q_.platform.empty())
      made_.assumed.push_back({"platform", "\"h100-sxm\"", "no --platform is given", "the default"});
    const std::optional<Recipe> recipe = find_recipe();
    if (recipe && (q_.profile.empty() || runs_recipes(released_profile(q_.profile))))
      take_recipe(*recipe);
    else
      take_smallest();
    take_habits();
    for (const std::string& one : set_) {
      const std::size_t equals = one.find('=');
      const std::string key = one.substr(0, equals), value = one.substr(equals + 1);
      std::erase_if(made_.assumed, [&](const Assumed& other) { return other.key == key; });
      if (value.empty())
        made_.keys.erase(key);
      else
        made_.keys[key] = in_toml(value);
    }
    add_readings();
    return std::move(made_);
  }

  Start start() {
    Start start;
    const std::optional<Recipe> recipe = find_recipe();
    const Transformer model = parse_scenario("[model]\n" + keys_of_model(model_), model_.name).model;
    const std::int64_t tokens = q_.seq_length > 0 ? q_.seq_length : model.seq_length;
    start.batch = std::max<std::int64_t>(1, kTokensOfStep / tokens / q_.gpus) * q_.gpus;
    if (!recipe || !(q_.profile.empty() || runs_recipes(released_profile(q_.profile)))) return start;
    const double of_gpus =
        double(recipe->number("training.global_batch_size", 1)) * double(q_.gpus) / double(recipe->gpus);
    start.batch = std::max<std::int64_t>(1, std::llround(of_gpus));
    start.profile = q_.profile.empty() ? recipe->profile : q_.profile;
    start.recipe = recipe->name;
    for (const std::string& key : keys_outside_layout())
      if (const auto found = recipe->keys.find(key); found != recipe->keys.end())
        start.assumed.push_back({key, found->second, "recipe " + recipe->name + " has it", kRecipes});
    return start;
  }

 private:
  // The recipe for this GPU and precision, else for another one of both.
  std::optional<Recipe> find_recipe() {
    const std::string gpu = recipe_gpu(platform_), precision = q_.precision.empty() ? "bf16" : q_.precision;
    for (const std::string& of : {gpu, std::string("h100"), std::string("b200")})
      if (auto recipe = recipe_of(model_, of, precision, q_.task, q_.gpus, true)) return recipe;
    return recipe_of(model_, "h100", "bf16", q_.task, q_.gpus, true);
  }

  void assume(const std::string& key, const std::string& value, const std::string& because, const std::string& source) {
    made_.keys[key] = value;
    made_.assumed.push_back({key, value, because, source});
  }

  void take_recipe(const Recipe& found) {
    const Recipe recipe = scaled(found, q_.gpus, set_);
    if (made_.profile.empty()) made_.profile = recipe.profile;
    made_.start = fmt::format("recipe {} of Megatron-Bridge, which is for {} GPUs", recipe.name, recipe.gpus);
    for (const auto& [key, value] : recipe.keys) {
      if (key.starts_with("model.") && key != "model.seq_length") {
        made_.keys[key] = value;
        continue;
      }
      const bool is_of_gpus = key == "parallel.data_parallel_size" || key == "training.global_batch_size";
      assume(key, value,
             is_of_gpus && recipe.gpus != q_.gpus ? fmt::format("recipe {} on {} GPUs", recipe.name, q_.gpus)
                                                  : "recipe " + recipe.name + " has it",
             kRecipes);
    }
    made_.notes = recipe.notes;
  }

  void take_smallest() {
    const std::string keys = keys_of_model(model_);
    for (std::size_t at = 0; at < keys.size();) {
      const std::size_t end = keys.find('\n', at), equals = keys.find(" = ", at);
      made_.keys["model." + keys.substr(at, equals - at)] = keys.substr(equals + 3, end - equals - 3);
      at = end + 1;
    }
    const FirstLayout first = first_layout(keys, platform_, q_.gpus, made_.profile, set_);
    if (made_.profile.empty()) made_.profile = first.profile;
    made_.start = "the smallest layout whose state fits, and what profile " + made_.profile +
                  " runs, as no recipe that ships is for this model and framework";
    for (const auto& [key, value] : first.keys) assume(key, value, first.because, first.source);
  }

  // Fills in the habits of the framework at this precision and layout.
  void take_habits() {
    Run run;
    run.profile = made_.profile;
    run.platform = platform_;
    run.model = model_.name;
    run.precision = q_.precision.empty() ? "bf16" : q_.precision;
    run.task = q_.task;
    run.gpus = q_.gpus;
    const auto size = [&](const char* key) {
      const auto found = made_.keys.find(key);
      return found == made_.keys.end() ? std::int64_t{1} : std::stoll(found->second);
    };
    run.tp = size("parallel.tensor_model_parallel_size");
    run.pp = size("parallel.pipeline_model_parallel_size");
    run.cp = size("parallel.context_parallel_size");
    // A recipe has said it all; elsewhere there is none for the model.
    run.says_ways = true;
    for (const auto& [key, value] : made_.keys) run.stated.insert(key);
    for (const std::string& one : set_) run.stated.insert(one.substr(0, one.find('=')));
    const Filled filled = habits_of(run);
    if (!filled.refused.empty()) throw input_error(q_.model + ": " + filled.refused);
    made_.profile = filled.profile;
    for (const Assumed& one : filled.values) assume(one.key, one.value, one.because, one.source);
  }

  // Adds other readings of the assumptions: routing as a router leaves it, and the library by which rows of experts are
  // exchanged where no recipe says it.
  void add_readings() {
    const auto is_assumed = [&](const std::string& key) {
      return !std::any_of(set_.begin(), set_.end(), [&](const std::string& one) { return one.starts_with(key + "="); });
    };
    if (!made_.keys.contains("parallel.expert_model_parallel_size")) return;
    const std::string loads = "training.moe_expert_loads";
    if (is_assumed(loads))
      for (const std::string& other : {std::string("forced"), std::string("natural")})
        if (const auto now = made_.keys.find(loads); now == made_.keys.end() || now->second != "\"" + other + "\"") {
          made_.readings.push_back({other + " routing", {loads + "=" + other}});
          // Models whose router has no bias were trained with an auxiliary loss (config.json of Mixtral and Qwen3:
          // router_aux_loss_coef 0.02 and 0.001).
          const Transformer model = parse_scenario("[model]\n" + keys_of_model(model_), model_.name).model;
          if (other == "natural" && !model.experts.moe_router_enable_expert_bias)
            made_.readings.back().set.emplace_back("model.moe_aux_loss_coeff=0.001");
        }
    const std::string dispatcher = "parallel.moe_token_dispatcher_type";
    if (is_assumed(dispatcher) && !made_.keys.contains(dispatcher))
      for (const std::string& library : {std::string("deepep"), std::string("hybridep")})
        made_.readings.push_back({library, {dispatcher + "=flex", "parallel.moe_flex_dispatcher_backend=" + library}});
    if (made_.readings.size() > kMostReadings) made_.readings.resize(kMostReadings);
  }

  const Question& q_;
  const ModelName& model_;
  const std::string platform_;
  std::vector<std::string> set_;
  Answer made_;
};

}  // namespace

std::string Answer::text() const {
  std::string text = fmt::format("name = \"{}\"\nplatform = \"{}\"\nprofile = \"{}\"\n", name, platform, profile),
              section;
  for (const auto& [key, value] : keys) {
    const std::size_t dot = key.find('.');
    if (key.substr(0, dot) != section) text += fmt::format("\n[{}]\n", section = key.substr(0, dot));
    text += fmt::format("{} = {}\n", key.substr(dot + 1), value);
  }
  return text;
}

Answer answer(const Question& question) { return Asked(question).run(); }

Start start_of_search(const Question& question) { return Asked(question).start(); }

namespace {

// Answers by the names under which their texts are kept.
struct Kept {
  std::mutex mutex = {};
  std::map<std::string, Answer> answers = {};
};
Kept& kept() {
  static Kept all;
  return all;
}

// Takes "key=value" out of the settings; "" where it is not there.
std::string taken(std::vector<std::string>& set, const std::string& key) {
  std::string value;
  std::erase_if(set, [&](const std::string& one) {
    if (!one.starts_with(key + "=")) return false;
    value = one.substr(key.size() + 1);
    return true;
  });
  return value;
}

}  // namespace

bool is_question(const std::vector<std::string>& set) {
  return std::any_of(set.begin(), set.end(), [](const std::string& one) { return one.starts_with("gpus="); });
}

std::string scenario_of_names(const std::string& model, std::vector<std::string>& set, const std::string& platform) {
  Question question;
  const std::string gpus = taken(set, "gpus");
  constexpr std::size_t kDigits = 8;
  const bool is_number =
      !gpus.empty() && gpus.size() <= kDigits && gpus.find_first_not_of("0123456789") == std::string::npos;
  question.gpus = is_number ? std::stoll(gpus) : 0;
  if (question.gpus < 1) throw input_error("gpus: expected a number from 1 to 2^24, got " + in_quotes(gpus));
  question.model = model;
  question.platform = platform;
  question.profile = taken(set, "profile");
  question.precision = taken(set, "low_precision");
  question.set = set;
  Answer made = answer(question);
  std::string name = made.name;
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  const std::string first = name;
  for (int number = 2; all.answers.contains(name) && all.answers.at(name).text() != made.text(); ++number)
    name = fmt::format("{} ({})", first, number);
  keep_toml(name, made.text());
  all.answers[name] = std::move(made);
  return name;
}

const Answer* answer_of(const std::string& scenario) {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  const auto found = all.answers.find(scenario);
  return found == all.answers.end() ? nullptr : &found->second;
}

nlohmann::json json_of(const Answer& answer) {
  nlohmann::json settings = nlohmann::json::array();
  for (const Assumed& one : answer.assumed)
    settings.push_back({{"key", one.key}, {"value", one.value}, {"because", one.because}, {"source", one.source}});
  return {{"start", answer.start}, {"settings", std::move(settings)}, {"notes", answer.notes}};
}

std::string Answer::summary() const {
  return fmt::format("assumed {} settings: {}; --assumed lists them, --set changes them", assumed.size(), start);
}

std::string Answer::list() const {
  std::string text;
  for (const Assumed& one : assumed)
    text += fmt::format("assumed: {} = {}, because {} ({})\n", one.key, one.value, one.because, one.source);
  return text;
}

}  // namespace stretto::habits
