#include "diagnose/recognise.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "diagnose/recognition.hpp"

namespace stretto::diagnose {

Recognition::Recognition(std::vector<Evidence> ranks, std::string file, bool is_own)
    : ranks_(std::move(ranks)), file_(std::move(file)), is_own_(is_own) {}

void Recognition::set(const char* section, const char* key, std::int64_t value, std::string why) {
  set(section, key, std::to_string(value), std::move(why));
}
void Recognition::set(const char* section, const char* key, std::string value, std::string why) {
  found_.keys.push_back({section, key, std::move(value), std::move(why)});
}
void Recognition::refuse(const std::string& problem) const { throw input_error(file_ + ": " + problem); }

Found Recognition::find(const Transformer* known) {
  find_sizes();
  find_tensor_groups();
  find_pipeline();
  find_heads();
  find_layers();
  find_experts();
  find_data_groups();
  find_batch();
  find_recomputation();
  if (attention_.value_dim != attention_.dim && known == nullptr)
    refuse(
        "attention has values of another width than its keys: sizes of latent vectors do not follow from a trace; "
        "expected --model NAME");
  find_style();
  if (known != nullptr) require_model(*known);
  find_framework();
  found_.unknown.push_back("overlaps and their pieces, the pipeline's schedule, how ranks are numbered");
  found_.unknown.push_back("dropout, the learning rate, the data");
  return std::move(found_);
}

void Recognition::find_framework() {
  std::vector<std::string> libraries;
  std::string profile;
  bool has_experts = false;
  for (const Evidence& rank : ranks_) {
    if (profile.empty()) profile = rank.profile;
    for (const std::string& one : rank.libraries)
      if (std::find(libraries.begin(), libraries.end(), one) == libraries.end()) libraries.push_back(one);
    has_experts = has_experts || std::any_of(rank.messages.begin(), rank.messages.end(), [](const SeenMessages& m) {
                    return m.cls == trace::KernelClass::dispatch || m.cls == trace::KernelClass::combine;
                  });
  }
  const std::string kernels = fmt::format("{}", fmt::join(libraries, ", "));
  for (const char* of_experts : {"DeepEP", "grouped", "DeepGEMM"})
    has_experts = has_experts || kernels.find(of_experts) != std::string::npos;
  if (has_experts && experts_.experts == 0)
    found_.unknown.push_back("experts: kernels of theirs run (" + kernels +
                             "), and no grouped product has shapes that say how many there are");
  if (profile.empty())
    found_.unknown.push_back("the profile: no kernel's name says the framework");
  else
    found_.keys.insert(found_.keys.begin(), {"", "profile", '"' + profile + '"', "kernels: " + kernels});
}

Found recognise(const Traces& traces, const KnownModel& known, const std::string& platform) {
  const bool is_own = traces.origin == trace::Origin::stretto;
  std::vector<Evidence> ranks;
  for (const trace::RankTrace& rank : traces.section.ranks)
    ranks.push_back(is_own ? own_evidence(rank) : kernel_evidence(rank));
  if (ranks.empty()) throw input_error("expected a trace, got none");
  Found found = Recognition(std::move(ranks), traces.section.ranks.front().file, is_own)
                    .find(known.shape ? &*known.shape : nullptr);
  if (!known.keys.empty())
    std::erase_if(found.keys, [](const FoundKey& key) {
      return key.section == "model" && key.key != "num_layers" && key.key != "seq_length";
    });
  if (!known.keys.empty()) found.model = known.keys;
  if (platform.empty()) found.unknown.push_back("platform: the trace names no GPU that has one; expected --platform");
  if (!platform.empty())
    found.keys.insert(found.keys.begin(), {"", "platform", '"' + platform + '"', "the trace's GPU"});
  return found;
}

std::string Found::text() const {
  std::string text;
  for (const char* section : {"", "model", "parallel", "overlap", "training"}) {
    const bool is_used =
        std::any_of(keys.begin(), keys.end(), [&](const FoundKey& key) { return key.section == section; });
    if (!is_used && section != std::string("model")) continue;
    if (*section != '\0') text += fmt::format("\n[{}]\n", section);
    if (section == std::string("model") && !model.empty()) text += model + (model.ends_with('\n') ? "" : "\n");
    for (const FoundKey& key : keys)
      if (key.section == section) text += fmt::format("{} = {}  # {}\n", key.key, key.value, key.why);
  }
  text += "\n# Not known:\n";
  for (const std::string& one : unknown) text += "# - " + one + "\n";
  return text;
}

}  // namespace stretto::diagnose
