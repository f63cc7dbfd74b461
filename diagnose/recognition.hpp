#pragma once
#include <string>
#include <vector>

#include "diagnose/evidence.hpp"
#include "diagnose/recognise.hpp"

namespace stretto::diagnose {

// Finds a scenario in what ranks of one run show. Each find_…() fills keys, and needs the ones before it.
class Recognition {
 public:
  // `file` is for messages. `is_own`: of a trace of Stretto's, which has every rank that differs from others.
  Recognition(std::vector<Evidence> ranks, std::string file, bool is_own);
  // Throws Error(input) with the file for traces without shapes, and for models that do not follow from them. `known`:
  // the model, or null.
  Found find(const Transformer* known);

 private:
  // recognise_model.cpp: the model, from shapes of products and from how often each runs.
  void find_sizes();  // tokens of a micro-batch, the hidden size, and which product is which
  void find_layers();
  void find_heads();
  void find_style();                                   // norms, positions, gates, biases
  void find_recomputation();                           // forward products that run more often than their gradients
  void require_model(const Transformer& known) const;  // throws with the first size that differs
  // recognise_layout.cpp: who shares what, from the groups of messages and their sizes.
  void find_tensor_groups();
  void find_pipeline();
  void find_experts();
  void find_data_groups();
  void find_batch();
  // recognise.cpp: the libraries and the profile by the names of kernels.
  void find_framework();

  void set(const char* section, const char* key, std::int64_t value, std::string why);
  void set(const char* section, const char* key, std::string value, std::string why);
  [[noreturn]] void refuse(const std::string& problem) const;
  double traced_replicas() const { return double(ranks_.size()) / double(pp_); }  // of a stage
  template <class Use>
  void for_messages(Use&& use) const {
    for (const Evidence& rank : ranks_)
      for (const SeenMessages& messages : rank.messages)
        if (messages.members > 1 && messages.members <= kMostMembers && within(messages.elements, kMostElements) > 0)
          use(messages);
  }

  std::vector<Evidence> ranks_;
  std::string file_, tensor_group_;
  bool is_own_ = false, is_sequence_parallel_ = false;
  std::vector<SeenWeight> weights_;  // of all ranks together
  SeenAttention attention_;
  SeenExperts experts_;
  const SeenWeight *proj_ = nullptr, *qkv_ = nullptr, *fc1_ = nullptr, *fc2_ = nullptr, *head_ = nullptr;
  std::int64_t tokens_ = 0, hidden_ = 0, tp_ = 1, pp_ = 1, cp_ = 1, dp_ = 1, ep_ = 1, etp_ = 1, layers_ = 0;
  double sends_ = 0, micro_batches_ = 0;  // sends between stages of all traced ranks; micro-batches of a replica
  Found found_;
};

}  // namespace stretto::diagnose
