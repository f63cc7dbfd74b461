#pragma once
#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "model/scenario/keys.hpp"
#include "tests/draw.hpp"

namespace stretto::testing {

// A section of a scenario file that is being written.
class TomlSection {
 public:
  explicit TomlSection(const std::string& name) : name_(name) { text_ << "[" << name << "]\n"; }
  void set(const char* key, std::int64_t value) { line(key) << value << "\n"; }
  void set(const char* key, bool value) { line(key) << (value ? "true" : "false") << "\n"; }
  void set(const char* key, double value) { line(key) << std::showpoint << value << "\n"; }
  void set(const char* key, const std::string& value) { line(key) << '"' << value << "\"\n"; }
  void set(const char* key, const char* value) { set(key, std::string(value)); }
  void set(const char* key, const std::vector<std::string>& values) {
    line(key) << "[";
    for (const std::string& value : values) text_ << '"' << value << "\", ";
    text_ << "]\n";
  }
  void set(const char* key, const std::vector<std::int64_t>& values) {
    line(key) << "[";
    for (const std::int64_t value : values) text_ << value << ", ";
    text_ << "]\n";
  }
  void set(const char* key, const KeyValue& value) { line(key) << value.dump() << "\n"; }
  const std::string& name() const { return name_; }
  std::string text() const { return text_.str() + "\n"; }
  const std::vector<std::string>& keys() const { return keys_; }
  bool has(const std::string& key) const { return std::count(keys_.begin(), keys_.end(), name_ + "." + key) > 0; }

 private:
  std::ostream& line(const char* key) {
    keys_.push_back(name_ + "." + key);
    return text_ << key << " = ";
  }
  std::string name_;
  std::vector<std::string> keys_;
  std::ostringstream text_;
};

// The text of a scenario, drawn section by section: how ranks are cut (random_ranks.cpp), the model (random_model.cpp),
// and how it is trained and what overlaps (random_training.cpp).
class RandomScenario {
 public:
  // `others` draws the keys that no code here decides, `mixers` linear attention, and `codes` a recipe of low
  // precision, unless it is null.
  RandomScenario(Draw& draw, Draw& others, Draw& mixers, Draw* codes = nullptr)
      : draw_(draw), others_(others), mixers_(mixers), codes_(codes), unit_(codes != nullptr ? 128 : 1) {}

  std::string toml();
  const std::vector<std::string>& keys() const { return keys_; }

 private:
  void add(const TomlSection& section, std::string& text);
  void sizes();
  void sharding();
  void instances();
  void context_of_layers();
  void split();
  void split_by_layout();
  void split_by_counts();
  void style();
  void latent();
  void attention_rules();
  void experts();
  void recompute_modules();
  void linear_attention();
  void hybrid();
  void micro_batches();
  void optimizer();
  void recompute();
  void overlap();
  void overlap_of_gemms();
  void streams();
  void fusions();
  void compare();
  void low_precision();
  void draw_others(TomlSection& section);

  Draw& draw_;
  Draw& others_;
  Draw& mixers_;
  Draw* codes_;
  const std::int64_t unit_;  // sizes are multiples of it
  std::string subsections_;
  std::vector<std::string> keys_;
  std::int64_t micro_batches_ = 1;
  bool rounds_ = false;  // some value is rounded to lower precision than fp64's
  std::int64_t dp_ = 1, tp_ = 1, pp_ = 1, vp_ = 1, cp_ = 1, layers_ = 0;
  std::int64_t exchange_ = 1;  // ranks that exchange heads
  std::int64_t instances_ = 1;
  bool has_order_ = false;
  bool pairs_ = false;          // overlap_moe_expert_parallel_comm
  bool has_instances_ = false;  // the optimizer may have instances
  bool is_bf16_ = false;
  bool is_aware_ = false;  // use_precision_aware_optimizer
  bool has_biases_ = true, recomputes_by_op_ = false, recomputes_modules_ = false, is_latent_ = false;
  bool has_experts_ = false;
  bool has_rope_ = false, may_have_rules_ = false;  // attention may have windows, sinks and caps
  bool norms_results_alone_ = false;
  bool may_send_codes_ = false;  // rows of experts go between ranks by NCCL's EP
  bool sequence_parallel_ = false;
  bool scatters_ = false;
  bool zero_bubble_ = false, is_dual_ = false;
  bool distributed_optimizer_ = true;
  bool unit_overlap_ = false;  // fsdp_comm_overlap acts, unless a rank is the only one
  TomlSection model_{"model"}, cluster_{"cluster"}, parallel_{"parallel"}, overlap_{"overlap"}, training_{"training"},
      compare_{"compare"};
};

}  // namespace stretto::testing
