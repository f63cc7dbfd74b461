#include "model/scenario.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/data_folder.hpp"
#include "base/toml_text.hpp"
#include "base/values_of.hpp"
#include "model/framework_profile.hpp"
#include "model/overlap/gates.hpp"
#include "model/scenario/given_keys.hpp"
#include "model/scenario/keys.hpp"
#include "model/scenario/not_modelled.hpp"
#include "model/scenario/overrides.hpp"
#include "model/scenario/reader.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

constexpr std::int64_t kMostCtas = 64;  // channels of one NCCL communicator at most (MAXCHANNELS of NCCL 2.28)

// The load of the fullest expert over the mean that balancing leaves: by a bias of each expert's score, and by an
// auxiliary loss (MaxVio of arXiv 2408.15664, table 2, 3 billion parameters and 64 experts, over a validation set: 0.04
// and 0.52).
constexpr double kFullestWithBias = 1.04, kFullestWithLoss = 1.52;
// Returns the exponent with which the largest of many loads of density x^-exponent is a given number of times their
// mean: below 0 loads crowd at the largest, and it is (2 - exponent) / (1 - exponent) times the mean.
double exponent_of_fullest(double over_mean) { return (2 - over_mean) / (1 - over_mean); }

// Defaults that a scenario takes from its platform's file; 0 where the file says nothing.
struct PlatformDefaults {
  std::int64_t ranks_per_device = 0;
  double compute_capability = 0;  // compute capability of its GPUs: 9.0 for H100
};
PlatformDefaults platform_defaults(const std::string& platform) {
  PlatformDefaults defaults;
  std::error_code problem;
  if (platform.empty() || !std::filesystem::is_regular_file(platform, problem)) return defaults;
  // Both keys stand before the first section. Calibrated platforms are long, so the rest of the file is not parsed a
  // second time.
  const std::string whole = toml_text(platform);
  const std::string_view text = std::string_view(whole).substr(0, whole.find("\n["));
  const auto says = [&](const char* key) { return text.find(key) != std::string_view::npos; };
  if (text.size() > kTomlMaxBytes || !(says("ranks_per_device") || says("compute_capability"))) return defaults;
  TomlTable file = parse_toml(text, platform);
  defaults.ranks_per_device = value_or<std::int64_t>(file, "ranks_per_device", 0, {.min = 0, .max = kMaxRanks});
  defaults.compute_capability = value_or<double>(file, "compute_capability", 0, {.min = 1, .max = 100});
  return defaults;
}

// Returns the CUDA_DEVICE_MAX_CONNECTIONS that the framework sets where a scenario says nothing; 0: none. Blackwell
// (10.0) and later need none, and FSDP and pairs of passes with experts run without it, as in Megatron-LM
// (arguments.py:1450 to 1478 at d98e8a64; Megatron-Bridge's scripts/performance/perf_plugins.py: "and not
// moe_a2a_overlap").
std::int64_t default_connections(const FrameworkProfile* profile, const PlatformDefaults& platform,
                                 const Parallel& parallel, const Overlap& overlap) {
  const bool is_before_blackwell = platform.compute_capability > 0 && platform.compute_capability < 10;
  const bool cuts_layers = parallel.tensor_model_parallel_size > 1 || parallel.context_parallel_size > 1;
  const bool runs_without = parallel.shards_gradients() || overlap.overlap_moe_expert_parallel_comm;
  if (profile == nullptr || !is_before_blackwell || !cuts_layers || runs_without) return 0;
  return static_cast<std::int64_t>(profile->max_connections.value);
}

Cluster read_cluster(TomlTable table, const Cluster& defaults) {
  Scenario scenario;
  Cluster& cluster = scenario.cluster = defaults;
  KeyReader(table, "cluster", scenario).read_others();
  if (cluster.network == Network::nccl && cluster.ranks_per_device != 1)
    throw table.failure("network", "expected ranks_per_device = 1 with \"nccl\", got " +
                                       number(cluster.ranks_per_device) +
                                       ": NCCL is measured with a GPU for each rank");
  TomlTable configs = table.section("nccl_communicator_config");
  std::vector<std::string> with_lanes;
  for (const RankGroup& group : rank_groups({})) {
    TomlTable config = configs.section(group.name);
    if (const auto ctas = config.find<std::int64_t>("max_ctas", {.min = 1, .max = kMostCtas}))
      cluster.max_ctas[group.name] = *ctas;
    if (choice_or(config, "cta_policy", "default", {"default", "zero"}) == "zero") {
      if (!cluster.nccl_ub)
        throw config.failure(
            "cta_policy",
            "expected [cluster] nccl_ub = true with \"zero\": copy engines go between registered buffers");
      cluster.zero_cta_groups.insert(group.name);
    }
    config.finish();
    if (group.has_lanes) with_lanes.push_back(group.name);
  }
  configs.finish();
  cluster.high_priority_stream_groups = value_or<std::vector<std::string>>(table, "high_priority_stream_groups", {});
  for (const std::string& group : cluster.high_priority_stream_groups) {
    if (std::find(with_lanes.begin(), with_lanes.end(), group) != with_lanes.end()) continue;
    const std::string nearest = nearest_spelling(group, with_lanes);
    throw table.failure("high_priority_stream_groups",
                        "expected groups out of dp, tp, cp and pp, got \"" + group + "\"" +
                            (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }
  table.finish();
  return cluster;
}

Compare read_compare(TomlTable table, Scenario scenario) {
  Compare& compare = scenario.compare;
  compare.modes = value_or<std::vector<std::string>>(table, "modes", {});
  compare.ranks = value_or<std::vector<std::int64_t>>(table, "ranks", {}, {.min = 1, .max = kMaxRanks});
  KeyReader(table, "compare", scenario).read_others();
  table.finish();
  for (std::size_t i = 0; i < compare.ranks.size(); ++i)
    if (std::count(compare.ranks.begin(), compare.ranks.end(), compare.ranks[i]) > 1)
      throw table.failure("ranks", "expected different numbers, got " + number(compare.ranks[i]) + " twice");
  const std::int64_t per_rank = scenario.training.micro_batch_size * scenario.num_microbatches();
  const std::int64_t of_model = scenario.parallel.model_ranks();
  for (const std::int64_t ranks : compare.ranks)
    if (ranks / of_model > kMaxGlobalBatch / per_rank)
      throw table.failure("ranks", "expected a global batch of at most " + number(kMaxGlobalBatch) +
                                       " sequences, got " + number(per_rank) + " a rank on " + number(ranks) +
                                       " ranks");
  return compare;
}

// Makes one fact of the type of gradients. Megatron's DDP has one buffer to which products add, which is reduced where
// it is and which the optimizer reads (distributed_data_parallel.py, param_and_grad_buffer.py of Megatron-LM d98e8a64).
// So the bytes of a profile's [memory] gradient decide the type of the reduction and the bytes of products; where the
// scenario names the type of the reduction (`is_given`), that decides the others. A profile that itself says in which
// type it reduces (`is_apart`), as those of FSDP, casts what it reduces, and states each number. Gradients of the
// optimizer in bf16 are reduced in bf16, and frameworks keep them so (arguments.py:1209 to 1216).
void take_gradients(Scenario& scenario, bool is_given, bool is_apart) {
  Framework& framework = scenario.framework;
  std::optional<Quantity>& kept = framework.memory.gradient;
  const bool is_of_optimizer =
      scenario.training.optimizer_precision.main_grads_dtype == OptimizerPrecision::Gradients::bf16;
  if (is_of_optimizer && !is_given && !is_apart) scenario.overlap.grad_reduce_in_fp32 = false;
  if (is_of_optimizer && framework.memory.is_known && !kept)
    kept = Quantity{2, {"published", "main_grads_dtype = bf16: DDP's gradient buffer is in bf16"}};
  if (!kept || is_apart) return;
  bool& in_fp32 = scenario.overlap.grad_reduce_in_fp32;
  const double f32_bytes = 4, bf16_bytes = 2;
  // With other types of parameters the buffer is in theirs, or in f32.
  const bool is_bf16 = scenario.training.precision == "bf16";
  if (!is_given && !is_of_optimizer) in_fp32 = kept->value > bf16_bytes || !is_bf16;
  if (const double bytes = in_fp32 ? f32_bytes : bf16_bytes; bytes != kept->value) {
    if (const auto fill = framework.element_bytes.find("fill"); fill != framework.element_bytes.end())
      fill->second.value *= bytes / kept->value;  // the buffer is zeroed and scaled
    *kept = {bytes, {"derived", std::string("grad_reduce_in_fp32 = ") + (in_fp32 ? "true" : "false"), 0}, 0, 0};
  }
  framework.element_bytes.try_emplace(
      "main_grad", Quantity{kept->value, {"derived", "[memory] gradient: products add to the buffer that is reduced"}});
}

void check_device(TomlTable& root, const Scenario& scenario) {
  std::int64_t ranks = scenario.parallel.ranks();
  for (const std::int64_t compared : scenario.compare.ranks) ranks = std::max(ranks, compared);
  const std::int64_t limit = scenario.cluster.ranks_per_device;
  if (limit > 0) ranks = std::min(ranks, limit);
  if (ranks > kMaxRanksOnDevice)
    throw root.section("cluster").failure(
        "ranks_per_device",
        "expected at most " + number(kMaxRanksOnDevice) + " ranks on one device, got " +
            (limit > 0 ? number(ranks) : "all " + number(ranks) + "; set it to 1 for a rank a device"));
}

// Refuses a scenario in which one rank could have to hold too much. The bound is computed in doubles because integers
// could overflow.
void check_size(TomlTable& root, const Scenario& scenario) {
  const Transformer& model = scenario.model;
  const std::int64_t tokens = scenario.training.micro_batch_size * model.seq_length;
  const auto failure = [&](const char* key, const std::string& message) {
    return section_of(root, "training").failure(key, message);
  };
  if (tokens > kMaxTokens)
    throw failure("micro_batch_size", "expected at most " + number(kMaxTokens) +
                                          " tokens a micro-batch (micro_batch_size x seq_length), got " +
                                          number(tokens));
  if (scenario.num_microbatches() > kMaxLayerCalls / model.num_layers)
    throw failure("global_batch_size", "expected at most " + number(kMaxLayerCalls) +
                                           " layers x micro-batches in a step, got " + number(model.num_layers) +
                                           " x " + number(scenario.num_microbatches()));
  const double h = double(model.hidden_size), f = double(model.ffn_hidden_size), fc1 = double(model.fc1_size()),
               q = double(std::max(model.q_size(), model.attention_size()));
  const double v = double(model.padded_vocab_size) * (model.untie_embeddings_and_output_weights ? 2 : 1);
  const double parameters = (v + double(model.max_position_embeddings)) * h +
                            double(model.num_layers) * (4 * h * q + h * (f + fc1) + 6 * h + 5 * q + fc1);
  const LatentAttention& latent = model.latent;
  const double ranks = latent.any() ? double(latent.q_lora_rank + latent.kv_down_size()) : 0;
  const double of_latents = double(model.num_layers) * (h * ranks + ranks * 2 * q);
  const Experts& experts = model.experts;
  const double count = double(experts.num_moe_experts), topk = experts.any() ? double(experts.moe_router_topk) : 0,
               width = double(model.expert_size()), shared = double(experts.moe_shared_expert_intermediate_size);
  const double of_experts = double(model.num_layers) * h * (count * (3 * width + 1) + 3 * shared + 1);
  const double activations =
      double(tokens) * double(model.num_layers) * (12 * h + 14 * q + 2 * f + 2 * fc1 + topk * (2 * h + 6 * width)) +
      double(tokens) * (2 * v + double(model.num_layers) * (4 * count + 6 * shared));
  if (8 * (4 * (parameters + of_experts + of_latents) + activations + double(tokens * model.num_layers) * 3 * ranks) >
      kMaxBytes)
    throw section_of(root, "model")
        .failure("hidden_size", "expected parameters and activations of at most 2^60 bytes, got more");
}

// A combination that the frameworks refuse is an error here: model/overlap/gates.hpp.
void refuse_closed_gates(TomlTable& root, const Scenario& scenario) {
  const Gates gates = gates_of(scenario);
  if (const Gate* gate = gates.refused(scenario.by_profile))
    throw section_of(root, gate->section).failure(gate->key, gate->refusal());
}

std::string resolved(const std::string& path, const std::filesystem::path& folder) {
  return path.empty() ? path : (folder / path).lexically_normal().string();
}

// Returns the file of a profile or platform that a scenario in `folder` names: a path, or a file that comes with
// Stretto.
std::string resolved_data(const std::string& kind, const std::string& name, const std::filesystem::path& folder) {
  if (kind == "profiles" && name.find('@') != std::string::npos)
    return resolved_data(kind, released_profile(name), folder);
  return is_data_name(name) ? data_file(kind, name) : resolved(name, folder);
}

}  // namespace

// Files that scenarios name. Each file is read once. Thread-safe.
class NamedFiles {
 public:
  explicit NamedFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  const FrameworkProfile& profile(const std::string& name) {
    return read(profiles_, name, [&] { return read_framework_profile(resolved_data("profiles", name, folder_)); });
  }
  const Documents& documents(const std::string& name, const std::function<Documents()>& read_them) {
    return read(documents_, name, read_them);
  }
  // A platform's path and what its head says.
  using PlatformHead = std::pair<std::string, PlatformDefaults>;
  const PlatformHead& platform(const std::string& name) {
    return read(platforms_, name, [&] {
      std::string path = resolved_data("platforms", name, folder_);
      const PlatformDefaults defaults = platform_defaults(path);
      return PlatformHead(std::move(path), defaults);
    });
  }

 private:
  template <class Value, class Read>
  const Value& read(std::map<std::string, Value>& known, const std::string& name, Read read) {
    const std::lock_guard lock(mutex_);
    const auto found = known.find(name);
    return found != known.end() ? found->second : known.emplace(name, read()).first->second;
  }

  const std::filesystem::path folder_;
  std::mutex mutex_;
  std::map<std::string, FrameworkProfile> profiles_;
  std::map<std::string, PlatformHead> platforms_;
  std::map<std::string, Documents> documents_;
};

namespace {

Scenario scenario_of(TomlTable file_root, const std::string& file, NamedFiles& files) {
  Scenario scenario;
  const std::filesystem::path& folder = files.folder();
  const std::string profile_name = value_or<std::string>(file_root, "profile", "");
  const FrameworkProfile* profile = nullptr;
  if (!profile_name.empty()) {
    profile = &files.profile(profile_name);
    scenario.framework = profile->framework;
  }
  TomlTable root = profile ? with_defaults(file_root, profile->scenario) : file_root;
  root.has("profile");
  scenario.name = value_or<std::string>(root, "name", std::filesystem::path(file).stem().string());
  PlatformDefaults platform;
  if (const std::string name = value_or<std::string>(root, "platform", ""); !name.empty())
    std::tie(scenario.platform, platform) = files.platform(name);
  const bool empty = file_root.empty();
  TomlTable model = section_of(root, "model"), cluster = section_of(root, "cluster"),
            parallel = section_of(root, "parallel"), overlap = section_of(root, "overlap"),
            training = section_of(root, "training"), compare = section_of(root, "compare");
  root.has("sweep");  // only `stretto sweep` reads its axes
  root.has("run");    // only `stretto simulate` reads it
  refuse_not_modelled(root);
  refuse_keys_of_other_sections(root);
  // This check comes before the one for a missing [model], which a misspelt section name causes.
  root.finish();
  if (!model.present())
    throw model.failure("preset",
                        std::string("expected a preset, hf_config, or num_layers, hidden_size, num_attention_heads, "
                                    "seq_length and vocab_size, got ") +
                            (empty ? "an empty file" : "no [model] section"));
  scenario.parallel = read_parallel(parallel);
  scenario.model = read_model(std::move(model), scenario.parallel, folder);
  check_layout(parallel, scenario.model, scenario.parallel);
  scenario.overlap = read_overlap(std::move(overlap), scenario.parallel);
  Cluster by_default;
  by_default.ranks_per_device = platform.ranks_per_device;
  by_default.cuda_device_max_connections = default_connections(profile, platform, scenario.parallel, scenario.overlap);
  scenario.cluster = read_cluster(std::move(cluster), by_default);
  Training training_by_default;
  scenario.compute_capability = platform.compute_capability;
  training_by_default.low_precision.fp8_transposes =
      platform.compute_capability > 0 && platform.compute_capability < 10;
  scenario.training = read_training(std::move(training), scenario.parallel, scenario.model, training_by_default);
  const auto names_type_of_gradients = [](TomlTable of) {
    TomlTable keys = of.section("overlap");
    return keys.has("grad_reduce_in_fp32") || keys.has("grad_sync_dtype");
  };
  take_gradients(scenario, names_type_of_gradients(file_root), profile && names_type_of_gradients(profile->scenario));
  if (ExpertLoads& loads = scenario.training.expert_loads; loads.kind == ExpertLoads::Kind::measured) {
    loads.file = resolved(loads.file, folder);
    read_measured(loads, scenario.model.experts.num_moe_experts);
  } else if (loads.kind == ExpertLoads::Kind::natural &&
             !section_of(root, "training").has("moe_expert_loads_exponent")) {
    const Experts& experts = scenario.model.experts;
    if (experts.moe_router_enable_expert_bias)
      loads.exponent = exponent_of_fullest(kFullestWithBias);
    else if (experts.moe_aux_loss_coeff > 0)
      loads.exponent = exponent_of_fullest(kFullestWithLoss);
  }
  read_documents(section_of(root, "training"), folder, scenario,
                 [&](const std::string& name, const std::function<Documents()>& read) -> const Documents& {
                   return files.documents(name, read);
                 });
  check_pipeline(parallel, scenario);
  for (const char* section : {"parallel", "overlap", "training"})
    for (const std::string& key : root.section(section).default_keys()) scenario.by_profile.push_back(key);
  refuse_closed_gates(root, scenario);
  check_size(root, scenario);
  scenario.compare = read_compare(std::move(compare), scenario);
  check_device(root, scenario);
  return scenario;
}

}  // namespace

const char* name_of(GraphModule module) {
  return name_in({"full_iteration", "attn", "mlp", "moe_router", "moe_preprocess"}, module);
}

const char* name_of(LrDecay decay) { return name_in({"cosine", "linear", "constant", "WSD"}, decay); }

const char* name_of(WsdDecay decay) { return name_in({"exponential", "linear", "cosine", "minus_sqrt"}, decay); }

Dtype Training::compute_dtype() const {
  return precision == "fp64" ? Dtype::f64 : precision == "bf16" ? Dtype::bf16 : Dtype::f32;
}

struct ScenarioReader::Files {
  std::string text, name;
  bool is_file = false;
  NamedFiles named;
  std::map<std::string, std::string> origins = {};
  std::once_flag is_parsed{};
  TomlNode root = {};

  const TomlNode& parsed() {
    std::call_once(is_parsed, [&] {
      root = parse_toml_nodes(text, name);
      if (!origins.empty()) name_origins();
    });
    return root;
  }
  void name_origins() {
    const auto unknown = std::make_shared<const std::string>(name);
    root.origin = unknown;
    for (auto& [section, table] : std::get<TomlNode::Table>(root.data)) {
      table.origin = unknown;
      auto* keys = std::get_if<TomlNode::Table>(&table.data);
      if (keys == nullptr) continue;
      for (auto& [key, node] : *keys) {
        const auto found = origins.find(section + "." + key);
        node.origin = found == origins.end() ? unknown : std::make_shared<const std::string>(found->second);
      }
    }
  }
};

ScenarioReader::ScenarioReader(std::string text, std::string name, bool is_file)
    : files_(new Files{std::move(text), name, is_file, NamedFiles(std::filesystem::path(name).parent_path())}) {}
ScenarioReader::ScenarioReader(std::string path) : ScenarioReader(toml_text(path), path, true) {}
ScenarioReader ScenarioReader::of_text(std::string text, std::string name, std::map<std::string, std::string> origins) {
  ScenarioReader reader(std::move(text), std::move(name), false);
  reader.files_->origins = std::move(origins);
  return reader;
}
ScenarioReader::~ScenarioReader() = default;
ScenarioReader::ScenarioReader(ScenarioReader&&) noexcept = default;
ScenarioReader& ScenarioReader::operator=(ScenarioReader&&) noexcept = default;

const std::string& ScenarioReader::text() const { return files_->text; }

Scenario ScenarioReader::read(const std::vector<std::string>& overrides) const {
  TomlNode root = files_->parsed();
  apply_settings(root, overrides);
  Scenario scenario = scenario_of(with_overrides(std::move(root), files_->name, {}), files_->name, files_->named);
  if (!files_->is_file) return scenario;
  scenario.file = files_->name;
  const std::filesystem::path& folder = files_->named.folder();
  Training& training = scenario.training;
  for (std::string* path : {&training.load, &training.checkpoint_dir}) *path = resolved(*path, folder);
  for (std::vector<std::string>* paths : {&training.data, &training.validation_data})
    for (std::string& path : *paths) path = resolved(path, folder);
  return scenario;
}

Scenario parse_scenario(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  return ScenarioReader::of_text(text, name).read(overrides);
}

Scenario read_scenario(const std::string& path, const std::vector<std::string>& overrides) {
  return ScenarioReader(path).read(overrides);
}

std::set<std::string> given_keys(const std::string& path, const std::vector<std::string>& overrides,
                                 const std::string& section) {
  TomlTable root = read_toml(path, overrides);
  std::set<std::string> given;
  const auto add = [&](TomlTable& from) {
    const std::vector<std::string> keys = section_of(from, section).keys();
    given.insert(keys.begin(), keys.end());
  };
  if (const std::string profile = value_or<std::string>(root, "profile", ""); !profile.empty()) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    FrameworkProfile read = read_framework_profile(resolved_data("profiles", profile, folder));
    add(read.scenario);
  }
  add(root);
  return given;
}

}  // namespace stretto
