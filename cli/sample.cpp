#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json_cost.hpp"
#include "base/printable.hpp"
#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "exec/state/weights.hpp"
#include "exec/text/draw.hpp"
#include "exec/text/forward.hpp"
#include "exec/text/tokenizer.hpp"
#include "exec/trainer.hpp"

namespace stretto::cli {
namespace {

namespace fs = std::filesystem;

struct SampleOptions : CommonOptions {
  std::string prompt = "\n", tokenizer;
  std::int64_t tokens = 100;
  exec::Drawing drawing;
};

// Returns whether the source is a folder of Hugging Face's, with a model and its weights, and no scenario.
bool is_folder(const std::string& source) {
  std::error_code problem;
  return fs::is_directory(source, problem);
}

// A checkpoint of llama.cpp is one file with its model and tokenizer in it, and no scenario.
void refuse_gguf(const std::string& source) {
  constexpr std::string_view kMagic = "GGUF";
  std::ifstream file(source, std::ios::binary);
  std::string begin(kMagic.size(), ' ');
  if (file.read(begin.data(), std::streamsize(begin.size())) && begin == kMagic)
    throw input_error(source +
                      ": expected a scenario or a folder of Hugging Face's, got a GGUF file (llama.cpp); take the "
                      "model's config.json, safetensors and tokenizer.json");
}

// Returns the scenario; of a folder, the model that its config.json describes, with the weights in the same folder.
Scenario source_of(const SampleOptions& options) {
  if (!is_folder(options.scenario)) {
    refuse_gguf(options.scenario);
    return scenario_of(options);
  }
  const std::string config = (fs::path(options.scenario) / "config.json").string();
  Scenario scenario = parse_scenario("[model]\nhf_config = \"config.json\"\n", config, options.set);
  scenario.training.load = options.scenario;
  return scenario;
}

// Returns the file of the tokenizer: the one that is named, else that of the folder; "" where a byte is a token.
std::string tokenizer_file(const SampleOptions& options) {
  if (!options.tokenizer.empty() || !is_folder(options.scenario)) return options.tokenizer;
  return (fs::path(options.scenario) / "tokenizer.json").string();
}

// Returns the tokens that end a text, which config.json of a folder names.
std::set<std::int32_t> ends_of(const SampleOptions& options) {
  if (!is_folder(options.scenario)) return {};
  const std::string file = (fs::path(options.scenario) / "config.json").string();
  Budget budget(file);
  const std::string text = read_text(file, budget);
  charge_json(text, budget);
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  std::set<std::int32_t> ends;
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return ends;
  for (const nlohmann::json& one : found->is_array() ? *found : nlohmann::json::array({*found}))
    if (one.is_number_integer()) ends.insert(one.get<std::int32_t>());
  return ends;
}

// Prints bytes as soon as they are whole characters.
class Characters {
 public:
  explicit Characters(std::ostream& out) : out_(out) {}
  void add(const std::string& bytes) {
    waiting_ += bytes;
    std::size_t done = 0;
    while (done < waiting_.size()) {
      const std::size_t length = utf8_length(std::string_view(waiting_).substr(done));
      constexpr std::size_t kLongest = 4;
      if (length == 0 && waiting_.size() - done < kLongest) break;
      done += std::max<std::size_t>(length, 1);
    }
    out_ << printable_lines(waiting_.substr(0, done)) << std::flush;
    waiting_.erase(0, done);
  }
  void finish() { out_ << printable_lines(waiting_) << std::endl; }

 private:
  std::ostream& out_;
  std::string waiting_;
};

exec::Tokenizer read_tokenizer(const std::string& file, const Scenario& scenario) {
  const exec::Tokenizer tokenizer = file.empty() ? exec::Tokenizer::of_bytes() : exec::Tokenizer::open(file);
  if (tokenizer.size() <= scenario.model.vocab_size) return tokenizer;
  throw input_error(fmt::format("{}: expected at most vocab_size = {} tokens, got {}",
                                file.empty() ? "--tokenizer (none: bytes)" : file, scenario.model.vocab_size,
                                tokenizer.size()));
}

void sample_command(const SampleOptions& options) {
  const Scenario scenario = source_of(options);
  if (!scenario.model.left_out.empty())
    throw input_error(
        options.scenario +
        ": [model] hf_config: expected a model whose text can be computed, got one where a part is left out, "
        "which is predicted alone: " +
        scenario.model.left_out.front());
  const std::string file = tokenizer_file(options);
  std::vector<Input> inputs = inputs_of(scenario);
  inputs.push_back({"the tokenizer", file});
  options.files.claim_outputs(std::move(inputs), scenario.training.checkpoint_dir);
  const exec::Tokenizer tokenizer = read_tokenizer(file, scenario);
  const std::set<std::int32_t> ends = ends_of(options);
  std::vector<std::int32_t> tokens = tokenizer.encode(options.prompt);
  if (tokens.empty()) throw input_error("--prompt: expected at least one token, got none");
  const std::size_t given = tokens.size();
  watch_interrupts();
  const std::int64_t wanted = static_cast<std::int64_t>(given) + options.tokens;
  exec::Forward forward(scenario, std::min(scenario.model.seq_length, wanted));
  exec::TrainOptions callbacks;
  callbacks.on_message = [](const std::string& line) { std::cerr << printable(line) << std::endl; };
  const std::int64_t step = exec::load_trained(scenario, forward.schedule(), forward.memory_of(), callbacks);
  Characters text(std::cout);
  const bool is_text_shown = !options.json.is_standard();
  if (is_text_shown) text.add(options.prompt);
  std::string made;
  while (static_cast<std::int64_t>(tokens.size()) < wanted && !interrupted()) {
    // A longer text is continued from its end.
    const auto window = std::span(tokens).last(std::min(tokens.size(), static_cast<std::size_t>(forward.length())));
    std::vector<double> logits = forward.logits_after(window);
    logits.resize(static_cast<std::size_t>(tokenizer.size()));
    tokens.push_back(exec::draw_token(logits, options.drawing, tokens.size()));
    if (ends.contains(tokens.back())) break;
    made += tokenizer.bytes_of(tokens.back());
    if (is_text_shown) text.add(tokenizer.bytes_of(tokens.back()));
  }
  if (is_text_shown) text.finish();
  write_json(options.json, {{"step", step},
                            {"prompt", printable_lines(options.prompt)},
                            {"text", printable_lines(made)},
                            {"prompt_tokens", given},
                            {"tokens", tokens}});
  if (interrupted()) throw runtime_failure("interrupted; this is the text so far");
}

}  // namespace

void add_sample(CLI::App& app) {
  auto options = std::make_shared<SampleOptions>();
  CLI::App* command =
      app.add_subcommand("sample", "text that a trained model writes, of a checkpoint or a folder of Hugging Face's");
  add_scenario_options(*command, *options);
  command->get_option("SCENARIO")
      ->description(
          "scenario file with a checkpoint_dir or load, or a folder with config.json, model.safetensors and "
          "tokenizer.json");
  add_json_option(*command, options->files, options->json);
  command->add_option("--prompt", options->prompt, "the text to continue; a line end unless given");
  command->add_option("--tokens", options->tokens, "write at most this number of tokens; 100 unless given")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command
      ->add_option(
          "--temperature", options->drawing.temperature,
          "logits are divided by it: below 1 likely tokens become likelier, 0 takes the likeliest; 1 unless given")
      ->check(CLI::Range(0.0, 100.0));
  command
      ->add_option("--top-k,--top_k", options->drawing.top_k,
                   "draw among this number of the likeliest tokens; 0, the default: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  command->add_option("--seed", options->drawing.seed, "one seed, one text; 1234 unless given");
  options->files.add_input(
      *command, "--tokenizer", options->tokenizer,
      "a tokenizer.json with byte-level BPE; unless given the folder's, or of a scenario a byte a token");
  command->callback([options] { sample_command(*options); });
}

}  // namespace stretto::cli
