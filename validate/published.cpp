#include "validate/published.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "base/budget.hpp"
#include "base/csv.hpp"
#include "base/data_folder.hpp"
#include "base/values_of.hpp"
#include "model/scenario/keys.hpp"
#include "sim/accelerator/numbers.hpp"
#include "validate/published_scenario.hpp"
#include "validate/published_words.hpp"

namespace stretto::validate {
namespace {

// The columns that are read.
enum Column : std::size_t {
  kId,
  kSource,
  kGpu,
  kGpus,
  kModel,
  kLayers,
  kHidden,
  kHeads,
  kKvHeads,
  kVocab,
  kSeq,
  kGbs,
  kMbs,
  kTp,
  kPp,
  kChunks,
  kCp,
  kEp,
  kDp,
  kPrecision,
  kRecompute,
  kFramework,
  kStep,
  kTask,
  kCluster,
  kCaveat,
  kRequired,  // the columns from here on may be missing
  kNotes = kRequired,
  kHbm,
  kHbmOf,
  kMoeLayers,
  kDispatcher,
  kExpertOverlap,
  kRouting,
  kDelayWgrad,
  kSharedOverlap,
  kCudaGraph,
  kColumns
};
constexpr std::array<const char*, kColumns> kNames = {"id",
                                                      "source",
                                                      "gpu",
                                                      "gpus",
                                                      "model",
                                                      "layers",
                                                      "hidden",
                                                      "heads",
                                                      "kv_heads",
                                                      "vocab",
                                                      "seq_len",
                                                      "gbs",
                                                      "mbs",
                                                      "tp",
                                                      "pp",
                                                      "vp_chunks",
                                                      "cp",
                                                      "ep",
                                                      "dp",
                                                      "precision",
                                                      "recompute",
                                                      "framework",
                                                      "step_time_s",
                                                      "task",
                                                      "cluster",
                                                      "caveat",
                                                      "overlap_notes",
                                                      "hbm_gb",
                                                      "hbm_of",
                                                      "moe_layers",
                                                      "dispatcher",
                                                      "ov_ep_a2a",
                                                      "routing",
                                                      "ov_delay_wgrad",
                                                      "ov_shared_expert",
                                                      "cuda_graph"};

// Plausible measured steps, in seconds, and networks of a node, in Gb/s.
constexpr double kShortest = 1e-6, kLongest = 1e7;
constexpr double kSlowest = 1e-3, kFastest = 1e6;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Thrown for a row that can be read but describes a step that is not modelled.
struct NotModelled {
  std::string why;
};

// Columns of a file whose cells are the value of a key, by their index among a row's cells.
using KeyColumns = std::map<std::size_t, const ScenarioKey*>;

class Reader {
 public:
  // `at`: index of each column among the row's cells; columns that the file lacks are beyond the end.
  Reader(const CsvRow& row, const std::array<std::size_t, kColumns>& at, const KeyColumns& keys,
         const PublishedWords& words, PublishedStep& step)
      : row_(row), at_(at), keys_(keys), words_(words), step_(step) {}

  // Throws Error(input) with file, line and column for a cell that cannot be read.
  void read() {
    step_.id = text(kId);
    step_.source = text(kSource);
    step_.gpu = text(kGpu);
    step_.model = text(kModel);
    step_.framework = text(kFramework);
    step_.cluster = text(kCluster);
    step_.recompute = text(kRecompute);
    read_numbers();
    try {
      understand();
      check_layout();
      step_.scenario_text = scenario_text(run_, step_.assumptions);
      add_readings();
    } catch (const NotModelled& reason) {
      step_.skipped = reason.why;
    }
  }

 private:
  // Returns "" for an empty cell.
  std::string text(Column column) const {
    if (at_[column] == kColumns) return "";
    const std::string_view cell = row_.text(at_[column]);
    return words_.is_nothing(cell) ? "" : std::string(cell);
  }
  std::int64_t count(Column column) const { return text(column).empty() ? 0 : count_in(at_[column]); }
  std::int64_t count_in(std::size_t cell) const {
    constexpr std::int64_t kMost = 1 << 24;
    const std::int64_t count = row_.count(cell);
    if (count > kMost) throw row_.error(cell, "a number up to 2^24");
    return count;
  }

  void read_numbers() {
    step_.gpus = run_.gpus = count(kGpus);
    if (!text(kStep).empty()) step_.step_s = row_.number(at_[kStep], kShortest, kLongest);
    run_.layers = count(kLayers);
    run_.hidden = count(kHidden);
    run_.heads = count(kHeads);
    run_.kv_heads = count(kKvHeads);
    run_.vocab = count(kVocab);
    run_.seq_len = count(kSeq);
    run_.gbs = count(kGbs);
    run_.mbs = count(kMbs);
    run_.tp = count(kTp);
    run_.pp = count(kPp);
    run_.chunks = count(kChunks);
    run_.cp = count(kCp);
    run_.ep = count(kEp);
    run_.dp = count(kDp);
    run_.moe_layers = count(kMoeLayers);
    for (const auto& [column, key] : keys_)
      if (const std::string_view cell = row_.text(column); !words_.is_nothing(cell))
        run_.columns[key->section] += fmt::format("{} = {}\n", key->name, value_of_cell(column, *key));
    step_.node_Gbps = rate_of_nodes();
    read_memory();
  }

  // Returns the value as TOML.
  std::string value_of_cell(std::size_t column, const ScenarioKey& key) const {
    const KeyValue by_default = stretto::value_of(key, {});
    const std::string cell(row_.text(column));
    if (by_default.is_number_integer()) return fmt::format("{}", count_in(column));
    if (by_default.is_number()) return fmt::format("{}", row_.number(column));
    if (!by_default.is_boolean()) return sim::toml_string(cell);
    if (cell != "true" && cell != "false") throw row_.error(column, "true or false");
    return cell;
  }

  void read_memory() {
    step_.offloads = lower(text(kNotes) + text(kCaveat)).find("offload") != std::string::npos;
    if (text(kHbm).empty()) return;
    step_.hbm_GiB = row_.number(at_[kHbm]);
    step_.hbm_of = text(kHbmOf).empty() ? "device" : lower(text(kHbmOf));
    if (step_.hbm_of != "device" && step_.hbm_of != "reserved" && step_.hbm_of != "allocated")
      throw row_.error(at_[kHbmOf], "device, reserved or allocated");
  }

  // Returns the network of a node that the caveat states, "inter-node 800 Gb/s"; 0: none.
  double rate_of_nodes() const {
    const std::string caveat = text(kCaveat);
    constexpr std::string_view kBefore = "inter-node ";
    const std::size_t at = lower(caveat).find(kBefore);
    if (at == std::string::npos) return 0;
    const std::string_view behind = std::string_view(caveat).substr(at + kBefore.size());
    const std::size_t blank = std::min(behind.find(' '), behind.size());
    const std::string_view number = behind.substr(0, blank), rest = behind.substr(std::min(blank + 1, behind.size()));
    double unit = 0;  // in Gb/s; the case of b distinguishes bits from bytes
    for (const auto& [name, Gbps] : {std::pair{"Gb/s", 1.0}, {"Gbps", 1.0}, {"Gbit/s", 1.0}, {"GB/s", 8.0}})
      if (rest.starts_with(name)) unit = Gbps;
    const bool is_number =
        !number.empty() && std::string_view("0123456789+-.").find(number[0]) != std::string_view::npos;
    if (unit == 0 && !is_number) return 0;  // "inter-node network not stated"
    double rate = 0;
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), rate);
    rate *= unit;
    if (problem != std::errc() || end != number.data() + number.size() || !(rate >= kSlowest && rate <= kFastest))
      throw row_.error(at_[kCaveat],
                       fmt::format("\"inter-node\", a rate from {:g} to {:g} and Gb/s or GB/s", kSlowest, kFastest));
    return rate;
  }

  void understand() {
    run_.id = step_.id;
    run_.model_name = step_.model;
    run_.task = step_.task = meant(kTask, words_.tasks, "pretrain");
    find_platform();
    find_profile();
    techniques_ = understood(text(kNotes) + ";" + step_.framework, words_.techniques);
    understood(text(kCaveat), words_.caveats);
    precision_ = read_precision();
    if (precision_.empty()) step_.assumptions.push_back("16-bit precision");
    run_.hybrid_shard = techniques_.contains("hybrid_shard") && run_.framework.shards;
    find_model();
    read_recomputation();
    take_habits();
    step_.profile = run_.profile;
    step_.precision = precision_;
  }

  // Returns all meanings of a cell's words; unknown words are ignored.
  std::set<std::string> understood(const std::string& cell, const std::vector<PublishedWords::Word>& entries) const {
    Words left(cell);
    return taken(left, entries);
  }
  std::set<std::string> taken(Words& left, const std::vector<PublishedWords::Word>& entries) const {
    std::set<std::string> means;
    for (const PublishedWords::Word& entry : entries) {
      if (!left.take(entry.words)) continue;
      if (!entry.refused.empty()) throw NotModelled{entry.refused};
      if (!entry.means.empty()) means.insert(entry.means);
    }
    return means;
  }
  // Returns all meanings of a cell whose words must all be known.
  std::set<std::string> all_of(Column column, const std::vector<PublishedWords::Word>& entries) const {
    Words left(text(column));
    std::set<std::string> means = taken(left, entries);
    if (left.has_more()) throw row_.error(at_[column], expected_of(entries));
    return means;
  }
  static std::string expected_of(const std::vector<PublishedWords::Word>& entries) {
    std::string text;
    for (const PublishedWords::Word& entry : entries)
      if (!entry.words.empty()) text += (text.empty() ? "one of " : ", ") + entry.words.back();
    return text + " (scenarios/published.toml has all words)";
  }
  // Returns the only meaning of such a cell.
  std::string meant(Column column, const std::vector<PublishedWords::Word>& entries, const char* by_default) const {
    const std::set<std::string> means = all_of(column, entries);
    if (means.size() > 1) throw row_.error(at_[column], "one " + std::string(kNames[column]));
    return means.empty() ? by_default : *means.begin();
  }

  // Products may be in a low precision and the rest in 16 bits; a row may say both, or the first among its notes.
  std::string read_precision() const {
    std::set<std::string> means = all_of(kPrecision, words_.precisions);
    if (techniques_.contains("fp8") && (means.empty() || means.contains("bf16"))) means.insert("fp8");
    if (means.size() > 1)
      for (const char* wide : {"bf16", "fp16"}) means.erase(wide);
    if (means.size() > 1) throw row_.error(at_[kPrecision], "one " + std::string(kNames[kPrecision]));
    return means.empty() ? "" : *means.begin();
  }

  void find_platform() {
    Words gpu(step_.gpu);
    for (const PublishedWords::Gpu& entry : words_.gpus)
      if (gpu.take(entry.words)) {
        step_.platform = run_.platform = entry.platform;
        break;
      }
  }

  void find_profile() {
    for (const PublishedWords::Framework& entry : words_.frameworks)
      if ((entry.platform.empty() || entry.platform == step_.platform) && Words(step_.framework).take(entry.words)) {
        run_.framework = entry;
        run_.profile = entry.profile;
        if (!entry.said.empty()) step_.assumptions.push_back(entry.said);
        break;
      }
    if (run_.profile.empty())
      throw NotModelled{"no profile of " + (step_.framework.empty() ? "an unnamed framework" : step_.framework)};
    if (step_.platform.empty())
      throw NotModelled{"no platform of " + (step_.gpu.empty() ? "an unnamed GPU" : step_.gpu)};
  }

  void find_model() {
    for (const PublishedWords::Model& entry : words_.models)
      // A name alone may not say the sizes of experts; columns do.
      if (Words(step_.model).take(entry.words) && (entry.refused.empty() || !has_column("num_moe_experts"))) {
        run_.model = entry;
        break;
      }
    if (!run_.model.refused.empty()) throw NotModelled{run_.model.refused};
    run_.has_experts = has_column("num_moe_experts") || run_.model.experts;
    if (run_.ep > 1 && !run_.has_experts) throw NotModelled{"experts without their number and sizes"};
    if (run_.has_experts && !run_.framework.of_experts.empty()) run_.profile = run_.framework.of_experts;
    if (run_.has_experts) read_experts();
    if (const auto sizes = words_.sizes.find(folded(step_.model)); sizes != words_.sizes.end()) {
      run_.sizes_by_name = run_.layers == 0;
      for (const auto& [size, known] : {std::pair{&run_.layers, sizes->second.layers},
                                        {&run_.hidden, sizes->second.hidden},
                                        {&run_.heads, sizes->second.heads}})
        if (*size == 0) *size = known;
    }
  }

  bool has_column(const std::string& key) const {
    const auto model = run_.columns.find("model");
    return model != run_.columns.end() && model->second.find(key + " = ") != std::string::npos;
  }

  // Turns a mode on, where there is one of this name.
  void turn_on(const char* key) {
    for (const ScenarioKey& row : scenario_keys_of("overlap"))
      if (row.name == std::string_view(key)) {
        run_.columns["overlap"] += fmt::format("{} = true\n", key);
        return;
      }
    throw NotModelled{fmt::format("{} is not modelled", key)};
  }

  // The modules of CUDA graphs, or none.
  void read_graphs() {
    Words cell(text(kCudaGraph));
    std::string modules;
    for (const GraphModule module : values_of<GraphModule>())
      if (cell.take({folded(name_of(module))}))
        modules += fmt::format("{}\"{}\"", modules.empty() ? "" : ", ", name_of(module));
    for (const char* other : {"transformerengine", "local", "none", "false", "off"}) cell.take({other});
    if (cell.has_more())
      throw row_.error(at_[kCudaGraph], "none, full_iteration, or some of attn, mlp, moe_router and moe_preprocess");
    if (modules.empty()) {
      if (text(kCudaGraph).empty()) step_.assumptions.push_back("no CUDA graphs");
      return;
    }
    run_.columns["training"] += fmt::format("cuda_graph_modules = [{}]\n", modules);
    if (modules != "\"full_iteration\"" || run_.ep <= 1) return;
    run_.columns["parallel"] += "moe_expert_rank_capacity_factor = 1.5\n";
    step_.assumptions.push_back("room for 1.5 times the mean number of rows");
    // Recipes of Megatron-Bridge that capture whole steps of experts in MXFP8 have it (perf_recipes at 067f987d,
    // qwen/common.py and deepseek/common.py).
    if (precision_ != "fp8_mx" || techniques_.contains("fused_experts")) return;
    techniques_.insert("fused_experts");
    step_.assumptions.push_back("experts' activation in the kernels of their products");
  }

  // The dispatcher and its overlap, from columns of their own or from the notes.
  void read_experts() {
    for (const Column column : {kDispatcher, kExpertOverlap, kRouting, kDelayWgrad, kSharedOverlap}) {
      const std::set<std::string> means =
          understood(std::string(kNames[column]) + " " + text(column), words_.techniques);
      if (!text(column).empty()) techniques_.insert(means.begin(), means.end());
    }
    const auto has = [&](const char* name) { return techniques_.contains(name); };
    for (const char* name : {"fp8_attention", "fused_experts"})
      if (understood(text(kCaveat), words_.techniques).contains(name)) techniques_.insert(name);
    if (has("deepep") || has("hybridep"))
      run_.dispatcher = has("deepep") ? "deepep" : "hybridep";
    else if (!has("alltoall") && run_.ep > 1)
      step_.assumptions.push_back("the all-to-all dispatcher"), says_dispatcher_ = false;
    if (has("ep_overlap")) turn_on("overlap_moe_expert_parallel_comm");
    if (has("delay_wgrad")) turn_on("delay_wgrad_compute");
    if (has("shared_overlap")) turn_on("moe_shared_expert_overlap");
    if (has("natural"))
      step_.assumptions.push_back("natural routing as a power law");
    else if (!has("forced") && run_.ep > 1)
      step_.assumptions.push_back("equal loads of experts"), says_routing_ = false;
    if (has("natural") || has("forced"))
      run_.columns["training"] += fmt::format("moe_expert_loads = \"{}\"\n", has("natural") ? "natural" : "forced");
    read_graphs();
    if (has("fused_experts")) run_.columns["training"] += "use_transformer_engine_op_fuser = true\n";
    if (has("fp8_attention")) run_.columns["training"] += "fp8_dot_product_attention = true\n";
  }

  // Adds the other readings of what the row leaves open: routing at random and as a router leaves it, and the library
  // of the framework's recipes.
  void add_readings() {
    const std::vector<std::string> routings =
        says_routing_ ? std::vector<std::string>{""} : std::vector<std::string>{"forced", "natural"};
    std::vector<std::string> dispatchers = {run_.dispatcher};
    if (!says_dispatcher_ && !run_.framework.flex.empty()) dispatchers.push_back(run_.framework.flex);
    if (routings.size() + dispatchers.size() == 2) return;
    for (const std::string& routing : routings)
      for (const std::string& dispatcher : dispatchers) {
        PublishedRun run = run_;
        run.dispatcher = dispatcher;
        std::string what = routing.empty() ? "" : routing + " routing";
        if (!routing.empty()) run.columns["training"] += fmt::format("moe_expert_loads = \"{}\"\n", routing);
        if (!says_dispatcher_) what += (what.empty() ? "" : ", ") + (dispatcher.empty() ? "alltoall" : dispatcher);
        std::vector<std::string> known;  // the row's assumptions again
        const bool is_of_row = dispatcher == run_.dispatcher;
        step_.readings.push_back({what, scenario_text(run, known), is_of_row ? "" : dispatcher});
      }
  }

  void read_recomputation() {
    std::set<std::string> means = all_of(kRecompute, words_.recomputations);
    run_.sequence_parallel = means.erase("sequence_parallel") > 0;
    if (means.erase("by_framework") > 0) means.insert(run_.framework.selective_op ? "op" : "selective");
    for (const auto module : values_of<Recompute::Module>())
      if (means.erase(name_of(module)) > 0) run_.recompute_modules.emplace_back(name_of(module));
    if (!run_.recompute_modules.empty() && means.empty()) run_.recompute = "selective";
    if (means.size() + (run_.recompute_modules.empty() ? 0 : 1) > 1)
      throw row_.error(at_[kRecompute], "one kind of recomputation");
    if (!means.empty()) run_.recompute = *means.begin();
    // torch._scaled_mm is not among the operations whose results torchtitan keeps (parallelize_llama.py, _save_list).
    if (run_.recompute != "op" || precision_ == "bf16" || precision_ == "fp16" || precision_.empty()) return;
    run_.recompute = "full";
    step_.assumptions.push_back("all products of layers computed again, as products of codes are not kept");
  }

  bool holds(const PublishedWords::Habit& habit) const {
    const auto is_one_of = [](const std::vector<std::string>& list, const std::string& name) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    const auto has_word = [](const std::string& cell, const std::vector<std::string>& words) {
      return words.empty() || Words(cell).take(words);
    };
    return (habit.of.empty() || is_one_of(habit.of, run_.profile)) && has_word(step_.model, habit.models) &&
           has_word(step_.source, habit.sources) && (habit.task.empty() || habit.task == run_.task) &&
           (habit.precisions.empty() || is_one_of(habit.precisions, precision_)) &&
           (habit.platforms.empty() || is_one_of(habit.platforms, step_.platform)) &&
           (habit.technique.empty() || techniques_.contains(habit.technique)) && (!habit.pipeline || run_.pp > 1) &&
           (!habit.tensor || run_.tp > 1) && (!habit.whole || run_.pp <= 1) && !says(habit.unless);
  }
  bool says(const std::string& column) const {
    const auto found = std::find(kNames.begin(), kNames.end(), column);
    return found != kNames.end() && !text(static_cast<Column>(found - kNames.begin())).empty();
  }
  void take_habits() {
    for (const PublishedWords::Habit& habit : words_.habits) {
      if (!holds(habit)) continue;
      if (!habit.refused.empty()) throw NotModelled{habit.refused};
      if (!habit.profile.empty()) run_.profile = habit.profile;
      if (!habit.precision_is.empty()) precision_ = habit.precision_is;
      if (!habit.keys.empty()) run_.habits[habit.section] += habit.keys + "\n";
      if (!habit.said.empty()) step_.assumptions.push_back(habit.said);
    }
  }

  void check_layout() const {
    if (step_.step_s == 0) throw NotModelled{"no step_time_s given"};
    for (const auto& [column, value] : {std::pair{kLayers, run_.layers},
                                        {kHidden, run_.hidden},
                                        {kHeads, run_.heads},
                                        {kSeq, run_.seq_len},
                                        {kGbs, run_.gbs}})
      if (value == 0) throw NotModelled{fmt::format("no {} given", kNames[column])};
    const std::int64_t of_model = run_.ranks_of_model();
    if (run_.gpus == 0 || run_.gpus % of_model != 0 || (run_.dp > 0 && run_.dp * of_model != run_.gpus))
      throw NotModelled{"gpus are not tp x cp x pp x dp"};
  }

  const CsvRow& row_;
  const std::array<std::size_t, kColumns>& at_;
  const KeyColumns& keys_;
  const PublishedWords& words_;
  PublishedStep& step_;
  PublishedRun run_;
  std::set<std::string> techniques_;
  std::string precision_;
  bool says_routing_ = true, says_dispatcher_ = true;  // false: the row leaves open what matters
};

}  // namespace

std::vector<PublishedStep> read_published(const std::string& path) {
  Budget budget(path);
  const std::string text = read_text(path, budget);
  std::vector<std::string> columns;
  std::array<std::size_t, kColumns> at{};
  for (std::size_t c = 0; c < kColumns; ++c) {
    const bool is_there = c < kRequired || has_csv_column(text, kNames[c]);
    at[c] = is_there ? columns.size() : kColumns;
    if (is_there) columns.emplace_back(kNames[c]);
  }
  KeyColumns keys;
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section))
      if (*key.column != '\0' && has_csv_column(text, key.column)) {
        keys[columns.size()] = &key;
        columns.emplace_back(key.column);
      }
  const PublishedWords words = read_published_words(data_path("published.toml"));
  std::vector<PublishedStep> steps;
  const auto step_at = [&](int line) -> PublishedStep& {
    if (steps.empty() || steps.back().line != line) steps.emplace_back().line = line;
    return steps.back();
  };
  read_csv(
      text, path, columns, [&](const CsvRow& row) { Reader(row, at, keys, words, step_at(row.line())).read(); },
      [&](int line, const Error& error) { step_at(line).skipped = error.what(); });
  return steps;
}

}  // namespace stretto::validate
