#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/toml.hpp"
#include "base/toml_text.hpp"
#include "cli/commands.hpp"
#include "cli/files.hpp"
#include "habits/model_names.hpp"
#include "interchange/perf_recipes.hpp"
#include "model/scenario.hpp"
#include "report/table.hpp"
#include "report/words.hpp"

namespace stretto::cli {
namespace {

using Json = nlohmann::json;

struct ListOptions {
  std::string what;
  Output json;
  Files files;
};

// A list as people read it, and its rows as JSON.
struct Listed {
  Table table;
  Json rows = Json::array();
};

// Returns the first sentence of the comment with which a file begins, or as many of its words as a line has room for.
std::string first_sentence(const std::string& path) {
  const std::string text = toml_text(path);
  std::string sentence;
  for (std::size_t at = 0; at < text.size() && text[at] == '#';) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    sentence += text.substr(at + 1, end - at - 1);
    at = end + 1;
  }
  const std::size_t end = sentence.find(". ");
  sentence = sentence.substr(0, end);
  sentence.erase(0, sentence.find_first_not_of(' '));
  while (sentence.ends_with('.')) sentence.pop_back();
  constexpr std::size_t kRoom = 100;
  if (sentence.size() <= kRoom) return sentence;
  sentence.resize(sentence.rfind(' ', kRoom));
  while (sentence.ends_with(',') || sentence.ends_with(':')) sentence.pop_back();
  return sentence + " …";
}

Listed list_models() {
  Listed listed{Table({"model", "parameters", "layers", "width", "experts", "recipe"})};
  for (const habits::ModelName& model : habits::model_names()) {
    const Transformer sizes = parse_scenario("[model]\n" + habits::keys_of_model(model), model.name).model;
    double parameters_of = 0;
    for (const Parameter& parameter : parameters(sizes)) parameters_of += double(parameter.elements());
    listed.table.add_row({model.name, fmt::format("{:.3g} billion", parameters_of * 1e-9),
                          fmt::format("{}", sizes.num_layers), fmt::format("{}", sizes.hidden_size),
                          sizes.experts.any() ? fmt::format("{}, {} a token", sizes.experts.num_moe_experts,
                                                            sizes.experts.moe_router_topk)
                                              : "",
                          model.recipe});
    listed.rows.push_back({{"name", model.name},
                           {"parameters", parameters_of},
                           {"layers", sizes.num_layers},
                           {"hidden_size", sizes.hidden_size},
                           {"experts", sizes.experts.num_moe_experts},
                           {"recipe", model.recipe}});
  }
  return listed;
}

Listed list_files(const std::string& kind) {
  Listed listed{Table({kind.substr(0, kind.size() - 1), "what it is"})};
  for (const std::string& name : data_names(kind)) {
    const std::string path = data_file(kind, name);
    std::string what = first_sentence(path);
    if (kind == "platforms") {
      TomlTable root = read_toml(path);
      what = value_or<std::string>(root, "device", what);
    }
    listed.table.add_row({name, printable(what)});
    listed.rows.push_back({{"name", name}, {"what", printable(what)}});
  }
  return listed;
}

Listed list_recipes() {
  Listed listed{Table({"recipe", "GPUs", "batch", "layout"})};
  for (const PerfRecipe& recipe : perf_recipes()) {
    const nlohmann::json settings = settings_of(recipe).settings;
    const nlohmann::json& model = settings["model"];
    const auto size = [&](const char* name, const char* key) {
      const auto found = model.find(key);
      return found != model.end() && found->is_number_integer() && *found > 1
                 ? fmt::format("{} {} ", name, found->get<std::int64_t>())
                 : std::string();
    };
    const std::string layout = size("tp", "tensor_model_parallel_size") + size("pp", "pipeline_model_parallel_size") +
                               size("vp", "virtual_pipeline_model_parallel_size") +
                               size("cp", "context_parallel_size") + size("ep", "expert_model_parallel_size") + "mbs " +
                               settings["train"]["micro_batch_size"].dump();
    const Json& batch = settings["train"]["global_batch_size"];
    listed.table.add_row({recipe.name, fmt::format("{}", recipe.gpus), batch.dump(), layout});
    listed.rows.push_back(
        {{"name", recipe.name}, {"gpus", recipe.gpus}, {"global_batch_size", batch}, {"layout", layout}});
  }
  return listed;
}

// The words of results: text that is no table.
Json words_json() {
  Json rows = Json::array();
  for (const Term& term : terms()) rows.push_back({{"name", term.name}, {"meaning", term.meaning}});
  return rows;
}
std::string words_text() {
  constexpr std::size_t kColumns = 100, kIndent = 2;
  std::string text;
  for (const Term& term : terms()) text += term.name + "\n" + wrapped("  " + term.meaning, kColumns, kIndent);
  return text;
}

void list_command(const ListOptions& options) {
  options.files.claim_outputs();
  const bool is_words = options.what == "words";
  const Listed listed = is_words                    ? Listed{Table({"word", "meaning"}), words_json()}
                        : options.what == "models"  ? list_models()
                        : options.what == "recipes" ? list_recipes()
                                                    : list_files(options.what);
  if (!options.json.is_standard()) std::cout << (is_words ? words_text() : listed.table.text());
  if (!options.json.empty()) write_json(options.json, {{"what", options.what}, {"rows", listed.rows}});
}

}  // namespace

void add_list(CLI::App& app) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app.add_subcommand(
      "list", "the models, platforms, profiles and recipes that have names, and the words of results");
  command->add_option("WHAT", options->what, "models, platforms, profiles, recipes or words")
      ->required()
      ->check(CLI::IsMember({"models", "platforms", "profiles", "recipes", "words"}));
  add_json_option(*command, options->files, options->json);
  command->callback([options] { list_command(*options); });
}

}  // namespace stretto::cli
