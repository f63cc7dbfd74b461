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
#include "habits/habits.hpp"
#include "habits/model_names.hpp"
#include "model/framework_profile.hpp"
#include "model/scenario/keys.hpp"
#include "validate/published_cells.hpp"
#include "validate/published_layout.hpp"
#include "validate/published_scenario.hpp"
#include "validate/published_switches.hpp"
#include "validate/published_words.hpp"

namespace stretto::validate {
namespace {

// Plausible measured steps, in seconds.
constexpr double kShortest = 1e-6, kLongest = 1e7;

class Reader : PublishedCells {
 public:
  // `at`: index of each column among the row's cells; columns that the file lacks are beyond the end.
  Reader(const CsvRow& row, const std::array<std::size_t, kColumns>& at, const KeyColumns& keys,
         const OtherColumns& others, const PublishedWords& words, PublishedStep& step)
      : PublishedCells(row, at, words), keys_(keys), others_(others), step_(step) {}

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
      check_sizes();
      step_.scenario_text = scenario_text(run_, step_.assumptions);
      add_readings();
    } catch (const NotModelled& reason) {
      step_.skipped = reason.why;
    }
  }

 private:
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
    run_.document_tokens = count(kDocumentTokens);
    for (const auto& [column, key] : keys_)
      if (const std::string_view cell = row_.text(column); !words_.is_nothing(cell) && !is_none(cell, *key))
        state(key->section, key->name, value_of_cell(column, *key));
    step_.node_Gbps = rate_of_nodes();
    read_memory();
    read_communication();
  }

  // Adds what the row itself says of a key.
  void state(const std::string& section, const std::string& key, const std::string& value) {
    run_.columns[section] += fmt::format("{} = {}\n", key, value);
    if (section == "overlap" && value == "true") step_.own_modes.insert(key);
  }

  void read_communication() {
    for (const auto& [column, time_s] : {std::pair{kActive, &step_.active_s}, {kHiddenComm, &step_.hidden_s}})
      if (!text(column).empty()) *time_s = row_.number(at_[column], 0, kLongest);
  }

  void read_memory() {
    step_.offloads = lower(text(kNotes) + text(kCaveat)).find("offload") != std::string::npos;
    if (text(kHbm).empty()) return;
    step_.hbm_GiB = row_.number(at_[kHbm]);
    step_.hbm_of = text(kHbmOf).empty() ? "device" : lower(text(kHbmOf));
    if (step_.hbm_of != "device" && step_.hbm_of != "reserved" && step_.hbm_of != "allocated")
      throw row_.error(at_[kHbmOf], "device, reserved or allocated");
  }

  void understand() {
    run_.id = step_.id;
    run_.model_name = step_.model;
    run_.task = step_.task = read_task();
    find_platform();
    find_profile();
    read_notes();
    read_remarks();
    precision_ = read_precision();
    if (precision_.empty()) step_.assumptions.push_back("16-bit precision");
    run_.hybrid_shard = techniques_.contains("hybrid_shard") && run_.framework.shards;
    find_model();
    read_attention();
    if (std::string why = complete_layout(run_, step_.assumptions); !why.empty()) throw NotModelled{std::move(why)};
    read_recomputation();
    take_habits();
    check_techniques();
    step_.profile = run_.profile;
    step_.precision = precision_;
  }

  // The notes about overlap, and what follows the framework's name.
  void read_notes() {
    // A switch without a value, "tp_comm_overlap=", says nothing.
    const std::string cell_of_notes = text(kNotes);
    std::string notes;
    for (std::string_view rest = cell_of_notes; !rest.empty();) {
      const std::size_t end = std::min(rest.find_first_of(" ,;"), rest.size() - 1);
      const std::string_view token = rest.substr(0, end + 1);
      if (token.find_last_not_of(" ,;") == std::string_view::npos || token[token.find_last_not_of(" ,;")] != '=')
        notes += token;
      rest.remove_prefix(end + 1);
    }
    for (const auto& [cell, column] : {std::pair{notes, kNotes}, {step_.framework, kFramework}}) {
      Words left(cell);
      if (column == kFramework) left.take_all(run_.framework.words);
      for (const auto& [key, is_on] : take_switches(left)) state("overlap", key, is_on ? "true" : "false");
      for (const std::string& technique : taken(left, words_.techniques)) techniques_[technique] = cell;
      left.take_all(run_.framework.also);
      finish(left, kNames[column], column == kFramework);
    }
    if (techniques_.contains("interleaved") && run_.pp > 1 && run_.chunks <= 1)
      throw NotModelled{"interleaved stages without vp_chunks"};
  }

  // Remarks: words of what is not modelled skip the row there too, and others are listed.
  void read_remarks() {
    Words left(text(kCaveat));
    taken(left, words_.caveats);
    for (const PublishedWords::Word& entry : words_.techniques)
      if (!entry.refused.empty() || entry.means == "fp8_attention" || entry.means == "fused_experts")
        for (const std::string& technique : taken(left, {entry})) techniques_[technique] = text(kCaveat);
    if (left.has_more()) step_.unread.emplace_back(kNames[kCaveat], text(kCaveat));
    read_other_columns();
  }
  void read_other_columns() {
    for (const auto& [column, name] : others_) {
      const std::string cell(row_.text(column));
      if (words_.is_nothing(cell)) continue;
      Words left(cell);
      const auto known = words_.columns.find(name);
      // Modes have columns ov_….
      if (const bool is_mode = name.starts_with("ov_"); is_mode || known != words_.columns.end()) {
        left.take_all(is_mode ? std::vector<std::string>{"false", "off", "no", "0"} : known->second);
        finish(left, name);
        continue;
      }
      for (const PublishedWords::Word& entry : words_.techniques)
        if (!entry.refused.empty()) taken(left, {entry});
      step_.unread.emplace_back(name, cell);
    }
  }
  // A task may say the routing and the length of its sequences too ("pretrain natural", "sft 128k").
  std::string read_task() {
    Words left(text(kTask));
    const std::set<std::string> means = taken(left, words_.tasks);
    for (const char* routing : {"natural", "forced"})
      if (left.take({routing})) techniques_[routing] = text(kTask);
    finish_words(left, kTask, words_.tasks);
    if (means.size() > 1) throw row_.error(at_[kTask], "one " + std::string(kNames[kTask]));
    return means.empty() ? "pretrain" : *means.begin();
  }

  // The kernel of attention, which a profile may have a variant for.
  void read_attention() {
    const std::set<std::string> means = all_of(kAttention, words_.attentions);
    if (means.size() > 1) throw row_.error(at_[kAttention], "one kernel of attention");
    if (means.empty()) return;
    const std::string& kernel = *means.begin();
    if (kernel == "unfused") return state("training", "attention_backend", "\"unfused\"");
    const auto kernel_of = [&](const std::string& profile) {
      return read_framework_profile(data_file("profiles", profile)).framework.attention_kernel;
    };
    if (kernel_of(run_.profile) == kernel) return;
    const std::string other = run_.profile + "-" + kernel;
    const std::vector<std::string> profiles = data_names("profiles");
    if (std::find(profiles.begin(), profiles.end(), other) == profiles.end())
      throw NotModelled{
          fmt::format("attention by {} with profile {} (\"{}\")", kernel, run_.profile, text(kAttention))};
    run_.profile = other;
    states_attention_ = true;
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
        if (entry.platform.empty()) return;
        gpu.take_all(entry.also);
        finish(gpu, kNames[kGpu]);
        step_.platform = run_.platform = entry.platform;
        return;
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
      if (Words(step_.model).take(entry.words) &&
          (entry.refused.empty() || entry.always || !has_column("num_moe_experts"))) {
        run_.model = entry;
        break;
      }
    if (!run_.model.style.empty()) {
      if (!has_all_sizes()) throw NotModelled{fmt::format("model: \"{}\" is not known", step_.model)};
      step_.assumptions.push_back(run_.model.style);
    }
    if (!run_.model.refused.empty()) throw NotModelled{fmt::format("{} (\"{}\")", run_.model.refused, step_.model)};
    Words name(step_.model);
    name.take_all(run_.model.words);
    const std::set<std::string> tasks = taken(name, words_.tasks);
    if (!tasks.empty() && !tasks.contains(run_.task))
      throw NotModelled{fmt::format("model says {}, and task {}", *tasks.begin(), run_.task)};
    for (const std::string& precision : taken(name, words_.precisions)) {
      if (precision_.empty()) precision_ = precision;
      if (precision != precision_ && !(precision == "fp8" && precision_.starts_with("fp8")))
        throw NotModelled{fmt::format("model says {}, and precision {}", precision, precision_)};
    }
    if (run_.model.style.empty()) finish(name, kNames[kModel], true);
    run_.has_experts = has_column("num_moe_experts") || run_.model.experts;
    if (run_.ep > 1 && !run_.has_experts) throw NotModelled{"experts without their number and sizes"};
    if (run_.has_experts && !run_.framework.of_experts.empty()) run_.profile = run_.framework.of_experts;
    if (techniques_.contains("fp8_attention")) state("training", "fp8_dot_product_attention", "true");
    if (run_.has_experts) {
      read_experts();
    } else {
      if (!text(kCudaGraph).empty()) read_graphs();
      for (const Column column : {kDispatcher, kExpertOverlap, kRouting, kDelayWgrad, kSharedOverlap})
        if (!text(column).empty()) step_.unread.emplace_back(kNames[column], text(column));
    }
    if (const auto sizes = words_.sizes.find(folded(step_.model)); sizes != words_.sizes.end()) {
      run_.sizes_by_name = run_.layers == 0;
      for (const auto& [size, known] : {std::pair{&run_.layers, sizes->second.layers},
                                        {&run_.hidden, sizes->second.hidden},
                                        {&run_.heads, sizes->second.heads}})
        if (*size == 0) *size = known;
    }
    take_sizes_by_name();
  }

  // Returns whether the columns alone say the sizes of a model.
  bool has_all_sizes() const {
    const bool has_experts =
        has_column("num_moe_experts") && has_column("moe_router_topk") && has_column("moe_ffn_hidden_size");
    return run_.layers > 0 && run_.hidden > 0 && run_.heads > 0 && (has_experts || has_column("ffn_hidden_size"));
  }

  // Fills in sizes that the row leaves out and its model's name says (scenarios/model_names.toml). Words after the
  // name, as "BF16", say nothing of sizes.
  void take_sizes_by_name() {
    const bool has_ffn = has_column("ffn_hidden_size") || run_.model.experts || has_column("num_moe_experts");
    if (run_.layers > 0 && run_.hidden > 0 && run_.heads > 0 && has_ffn) return;
    std::string name = step_.model;
    const habits::ModelName* named = habits::model_named(name);
    for (std::size_t blank; named == nullptr && (blank = name.rfind(' ')) != std::string::npos;) {
      name.resize(blank);
      named = habits::model_named(name);
    }
    if (named == nullptr) return;
    const Transformer model = parse_scenario("[model]\n" + habits::keys_of_model(*named), step_.id).model;
    if (run_.hidden > 0 && run_.hidden != model.hidden_size) return;
    if (run_.layers > 0 && run_.hidden > 0 && run_.heads > 0) {
      run_.model.keys += fmt::format("ffn_hidden_size = {}\n", model.ffn_hidden_size);
      step_.assumptions.push_back("the width of " + named->name + "'s MLP");
      if (run_.kv_heads == 0 && run_.heads == model.num_attention_heads && !model.latent.any())
        run_.kv_heads = model.kv_heads();
      return;
    }
    run_.sizes_by_name = true;
    if (run_.layers == 0) run_.layers = model.num_layers;
    run_.hidden = model.hidden_size;
    if (run_.heads == 0) {
      run_.heads = model.num_attention_heads;
      if (run_.kv_heads == 0 && !model.latent.any()) run_.kv_heads = model.kv_heads();
    }
    if (run_.vocab == 0) run_.vocab = model.vocab_size;
    // With a hidden size a preset's width of the MLP does not count.
    if (!has_column("ffn_hidden_size")) run_.model.keys += fmt::format("ffn_hidden_size = {}\n", model.ffn_hidden_size);
  }

  bool has_column(const std::string& key) const {
    const auto model = run_.columns.find("model");
    return model != run_.columns.end() && model->second.find(key + " = ") != std::string::npos;
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
    techniques_["fused_experts"] = "MXFP8";
    step_.assumptions.push_back("experts' activation in the kernels of their products");
  }

  // The dispatcher and its overlap, from columns of their own or from the notes.
  void read_experts() {
    for (const Column column : {kDispatcher, kExpertOverlap, kRouting, kDelayWgrad, kSharedOverlap}) {
      if (text(column).empty()) continue;
      Words left(std::string(kNames[column]) + " " + text(column));
      for (const std::string& technique : taken(left, words_.techniques)) techniques_[technique] = text(column);
      left.take_all({folded(kNames[column])});
      finish(left, kNames[column]);
    }
    const auto has = [&](const char* name) { return techniques_.contains(name); };
    if (has("deepep") || has("hybridep"))
      run_.dispatcher = has("deepep") ? "deepep" : "hybridep";
    else if (has("flex"))
      run_.dispatcher = run_.framework.flex.empty() ? throw NotModelled{"a flex dispatcher without its library"}
                                                    : run_.framework.flex;
    else if (!has("alltoall") && !has("allgather_dispatcher") && run_.ep > 1)
      step_.assumptions.push_back("the all-to-all dispatcher"), says_dispatcher_ = false;
    if (has("ep_overlap")) state("overlap", "overlap_moe_expert_parallel_comm", "true");
    if (has("delay_wgrad")) state("overlap", "delay_wgrad_compute", "true");
    if (has("shared_overlap")) state("overlap", "moe_shared_expert_overlap", "true");
    if (has("natural"))
      step_.assumptions.push_back("natural routing as a power law");
    else if (!has("forced") && run_.ep > 1)
      step_.assumptions.push_back("equal loads of experts"), says_routing_ = false;
    if (has("natural") || has("forced"))
      run_.columns["training"] += fmt::format("moe_expert_loads = \"{}\"\n", has("natural") ? "natural" : "forced");
    read_graphs();
    if (has("fused_experts")) run_.columns["training"] += "use_transformer_engine_op_fuser = true\n";
  }

  // Adds the other readings of what the row leaves open: routing at random and as a router leaves it, and the library
  // of the framework's recipes.
  void add_readings() {
    if (has_recipe_) {
      PublishedRun run = without_recipe_;
      std::vector<std::string> known;  // the row's assumptions again
      step_.readings.push_back({"without the recipe's settings", scenario_text(run, known), "without the recipe"});
    }
    const std::vector<std::string> routings =
        says_routing_ ? std::vector<std::string>{""} : std::vector<std::string>{"forced", "natural"};
    std::vector<std::string> dispatchers = {run_.dispatcher};
    if (!says_dispatcher_ && !has_recipe_ && !run_.framework.flex.empty()) dispatchers.push_back(run_.framework.flex);
    if (routings.size() + dispatchers.size() == 2) return;
    for (const std::string& routing : routings)
      for (const std::string& dispatcher : dispatchers) {
        PublishedRun run = run_;
        run.dispatcher = dispatcher;
        std::string what = routing.empty() ? "" : routing + " routing";
        if (!routing.empty()) run.columns["training"] += fmt::format("moe_expert_loads = \"{}\"\n", routing);
        if (!says_dispatcher_ && !has_recipe_)
          what += (what.empty() ? "" : ", ") + (dispatcher.empty() ? "alltoall" : dispatcher);
        std::vector<std::string> known;  // the row's assumptions again
        const bool is_of_row = dispatcher == run_.dispatcher;
        step_.readings.push_back({what, scenario_text(run, known), is_of_row ? "" : dispatcher});
      }
  }

  // The words of the cell; of "full block 4" the method and its number of layers become keys.
  std::set<std::string> words_of_recomputation() {
    Words left(text(kRecompute));
    std::set<std::string> means = taken(left, words_.recomputations);
    const bool is_uniform = means.erase("uniform") > 0, is_block = means.erase("block") > 0;
    if (const auto plain = words_.plain.find(kNames[kRecompute]); plain != words_.plain.end())
      left.take_all(plain->second);
    const std::vector<std::string> rest = left.rest();
    if (!is_uniform && !is_block) {
      if (!rest.empty()) throw row_.error(at_[kRecompute], expected_of(words_.recomputations));
      return means;
    }
    std::int64_t layers = 1;
    const char* const end = rest.empty() ? nullptr : rest.front().data() + rest.front().size();
    if (rest.size() > 1 || (is_uniform && is_block) ||
        (end != nullptr && (std::from_chars(rest.front().data(), end, layers).ptr != end || layers < 1)))
      throw row_.error(at_[kRecompute], "uniform or block, and a number of layers");
    means.insert("full");
    run_.columns["training"] +=
        fmt::format("recompute_method = \"{}\"\nrecompute_num_layers = {}\n", is_block ? "block" : "uniform", layers);
    return means;
  }

  void read_recomputation() {
    std::set<std::string> means = words_of_recomputation();
    run_.sequence_parallel = means.erase("sequence_parallel") > 0;
    if (means.erase("by_framework") > 0) means.insert(run_.framework.selective_op ? "op" : "selective");
    for (const auto module : values_of<Recompute::Module>())
      if (means.erase(name_of(module)) > 0) run_.recompute_modules.emplace_back(name_of(module));
    if (!run_.recompute_modules.empty()) means.erase("selective");
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
  // Words of the row first, then what the framework and its recipes do where the row says nothing.
  void take_habits() {
    take_words();
    const habits::Filled filled = habits::habits_of(known_run());
    if (!filled.refused.empty()) throw NotModelled{filled.refused};
    if (!states_attention_) run_.profile = filled.profile;
    precision_ = filled.precision;
    if (run_.document_tokens == 0) run_.document_tokens = filled.document_tokens;
    without_recipe_ = run_;
    std::string of_recipe;
    for (const habits::Assumed& one : filled.values) {
      const std::size_t dot = one.key.find('.');
      const std::string line = fmt::format("{} = {}\n", one.key.substr(dot + 1), one.value);
      run_.habits[one.key.substr(0, dot)] += line;
      if (one.is_of_recipe)
        of_recipe += (of_recipe.empty() ? "" : ", ") + fmt::format("{} {}", one.key.substr(dot + 1), one.value);
      else
        without_recipe_.habits[one.key.substr(0, dot)] += line;
    }
    step_.assumptions.insert(step_.assumptions.end(), filled.said.begin(), filled.said.end());
    if (of_recipe.empty()) return;
    try {
      std::vector<std::string> known;
      parse_scenario(scenario_text(run_, known), step_.id);
    } catch (const Error&) {  // the recipe is for another layout than the row's
      run_ = without_recipe_;
      return;
    }
    has_recipe_ = true;
    std::erase_if(step_.assumptions,
                  [](const std::string& one) { return one == "the all-to-all dispatcher" || one == "no CUDA graphs"; });
    step_.assumptions.push_back(fmt::format("as recipe {} has it: {}", filled.recipe, of_recipe));
  }

  // Returns the row as the table of habits asks for it.
  habits::Run known_run() const {
    habits::Run run;
    run.profile = run_.profile;
    run.platform = step_.platform;
    run.model = step_.model;
    run.precision = precision_;
    run.task = run_.task;
    run.source = lower(step_.source + " " + step_.framework + " " + step_.cluster + " " + text(kCaveat));
    for (const std::string& cell : {text(kRelease), step_.framework, step_.source})
      if (run.release.empty()) run.release = habits::release_of(cell);
    run.gpus = run_.gpus;
    run.tp = run_.tp;
    run.pp = run_.pp;
    run.cp = run_.cp;
    for (const auto* said : {&run_.columns, &run_.habits})
      for (const auto& [section, keys] : *said)
        for (std::size_t at = 0, end = 0; (end = keys.find('\n', at)) != std::string::npos; at = end + 1)
          run.stated.insert(section + "." + keys.substr(at, keys.find(" = ", at) - at));
    if (!text(kChunks).empty()) run.stated.insert("parallel.virtual_pipeline_model_parallel_size");
    const bool says_recompute = !text(kRecompute).empty();
    if (says_recompute) run.stated.insert("training.recompute_granularity");
    // A row that names one of the ways in which it exchanges rows of experts, or its graphs, names them all.
    bool says_ways = false;
    for (const Column column : {kDispatcher, kExpertOverlap, kDelayWgrad, kSharedOverlap, kCudaGraph})
      says_ways = says_ways || (at_[column] != kColumns && !row_.text(at_[column]).empty());
    for (const char* technique :
         {"deepep", "hybridep", "flex", "alltoall", "allgather_dispatcher", "ep_overlap", "delay_wgrad"})
      says_ways = says_ways || techniques_.contains(technique);
    run.says_ways = says_ways || (run_.has_experts && run_.ep <= 1);
    return run;
  }

  void take_words() {
    for (const PublishedWords::Habit& habit : words_.habits) {
      if (!holds(habit)) continue;
      if (!habit.refused.empty()) throw NotModelled{habit.refused};
      if (!habit.profile.empty()) run_.profile = habit.profile;
      if (!habit.precision_is.empty()) precision_ = habit.precision_is;
      if (!habit.keys.empty()) run_.habits[habit.section] += habit.keys + "\n";
      used_.insert(habit.technique);
      // A mode that a word of the row stands for is the row's own.
      if (!habit.technique.empty() && habit.section == "overlap")
        for (const ScenarioKey& key : scenario_keys_of("overlap"))
          if (("\n" + habit.keys).find(fmt::format("\n{} = true", key.name)) != std::string::npos)
            step_.own_modes.insert(key.name);
      if (!habit.said.empty()) step_.assumptions.push_back(habit.said);
    }
  }

  // A word that is understood must have acted.
  void check_techniques() {
    // They say what is so without them, or read_precision() and read_notes() have taken them.
    used_.insert({"eager", "vanilla_tp", "fp8", "interleaved", "fp8_attention"});
    if (run_.framework.shards) used_.insert("hybrid_shard");
    if (run_.has_experts)
      used_.insert({"deepep", "hybridep", "flex", "alltoall", "ep_overlap", "delay_wgrad", "shared_overlap", "natural",
                    "forced", "fused_experts"});
    for (const auto& [technique, cell] : techniques_)
      if (!used_.contains(technique))
        throw NotModelled{fmt::format("\"{}\" does nothing in this model, layout and framework", cell)};
  }

  void check_sizes() const {
    if (step_.step_s == 0) throw NotModelled{"no step_time_s given"};
    for (const auto& [column, value] : {std::pair{kLayers, run_.layers},
                                        {kHidden, run_.hidden},
                                        {kHeads, run_.heads},
                                        {kSeq, run_.seq_len},
                                        {kGbs, run_.gbs}})
      if (value == 0) throw NotModelled{fmt::format("no {} given", kNames[column])};
  }

  const KeyColumns& keys_;
  const OtherColumns& others_;
  PublishedStep& step_;
  PublishedRun run_;
  std::map<std::string, std::string> techniques_;  // meaning → the cell that says it
  std::set<std::string> used_;                     // techniques that something here depends on
  std::string precision_;
  PublishedRun without_recipe_;  // the run without settings of the recipe that the row does not name
  bool has_recipe_ = false;
  bool states_attention_ = false;                      // the row names its kernel, and the profile has it
  bool says_routing_ = true, says_dispatcher_ = true;  // false: the row leaves open what matters
};

// Returns the column of a file whose cells are values of the key: its own, or one with the key's name; "": none.
std::string column_of(const ScenarioKey& key, const std::vector<std::string>& header) {
  if (std::find(kNames.begin(), kNames.end(), std::string_view(key.name)) != kNames.end() || key.field == nullptr)
    return "";
  for (const char* column : {key.column, key.name, std::string_view(key.name) == "kv_channels" ? "head_dim" : ""})
    if (*column != '\0' && std::find(header.begin(), header.end(), column) != header.end()) return column;
  return "";
}

}  // namespace

std::vector<std::string> PublishedStep::assumed() const {
  std::vector<std::string> all = assumptions;
  for (const auto& [column, cell] : unread) all.push_back(fmt::format("{} not read: {}", column, cell));
  return all;
}

std::vector<PublishedStep> read_published(const std::string& path) {
  Budget budget(path);
  const std::string text = read_text(path, budget);
  const std::vector<std::string> header = csv_columns(text);
  std::vector<std::string> columns;
  std::array<std::size_t, kColumns> at{};
  for (std::size_t c = 0; c < kColumns; ++c) {
    const bool is_there = c < kRequired || std::find(header.begin(), header.end(), kNames[c]) != header.end();
    at[c] = is_there ? columns.size() : kColumns;
    if (is_there) columns.emplace_back(kNames[c]);
  }
  KeyColumns keys;
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section))
      if (const std::string column = column_of(key, header); !column.empty()) {
        keys[columns.size()] = &key;
        columns.emplace_back(column);
      }
  const PublishedWords words = read_published_words(data_path("published.toml"));
  OtherColumns others;
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& column : header)
    if (!column.empty() && !has(columns, column) && !has(words.labels, column)) {
      others[columns.size()] = column;
      columns.push_back(column);
    }
  std::vector<PublishedStep> steps;
  const auto step_at = [&](int line) -> PublishedStep& {
    if (steps.empty() || steps.back().line != line) steps.emplace_back().line = line;
    return steps.back();
  };
  read_csv(
      text, path, columns, [&](const CsvRow& row) { Reader(row, at, keys, others, words, step_at(row.line())).read(); },
      [&](int line, const Error& error) { step_at(line).skipped = error.what(); });
  return steps;
}

}  // namespace stretto::validate
