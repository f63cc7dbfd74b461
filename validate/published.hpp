#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto::validate {

// A training step that somebody measured and published: one row of a file whose columns
// docs/validate.md lists. Fields are the text of the cells, "" where the row says nothing.
struct PublishedStep {
  int line = 0;  // of the file
  std::string id, source, gpu, model, framework, cluster, recompute;
  std::string task;  // "pretrain", "sft", "lora"
  std::int64_t gpus = 0;
  double step_s = 0;
  // Peak of a GPU's memory, and of what it is: "device", all of it; "reserved", what PyTorch's allocator held;
  // "allocated", its tensors. 0: the row says nothing.
  double hbm_GiB = 0;
  std::string hbm_of;
  bool offloads = false;  // its notes say so: it need not fit as it is predicted
  double node_Gbps = 0;   // of a node's network, one direction; 0: the platform's
  // What it is as a scenario, or why it cannot be one.
  std::string scenario_text;  // TOML
  std::string platform, profile;
  std::string skipped;  // "" when it is modelled
  std::vector<std::string> assumptions;
};

// All rows of a file, each as a scenario or with the reason why not: what cannot be read has file, line and column
// there. Words of the cells mean what scenarios/published.toml says. Throws Error(input) with file and line where it is
// the file that cannot be read: a column that is missing, text that is not UTF-8.
std::vector<PublishedStep> read_published(const std::string& path);

}  // namespace stretto::validate
