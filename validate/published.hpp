#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace stretto::validate {

// A training step that somebody measured and published: one row of a file whose columns docs/validate.md lists. Fields
// are the text of the cells, "" where a cell is empty.
struct PublishedStep {
  int line = 0;  // line of the file
  std::string id, source, gpu, model, framework, cluster, recompute;
  std::string task;       // "pretrain", "sft", "lora"
  std::string precision;  // "bf16", "fp16", or a recipe with Megatron-Bridge's name ("fp8_cs")
  std::int64_t gpus = 0;
  double step_s = 0;
  // Peak of a GPU's memory, and its kind: "device", all of it; "reserved", bytes that PyTorch's allocator held;
  // "allocated", its tensors. 0: the row has no peak.
  double hbm_GiB = 0;
  std::string hbm_of;
  // Measured communication of a step: time in which it is active, and the part that is hidden; 0: the row has none.
  double active_s = 0, hidden_s = 0;
  bool offloads = false;  // its notes say that it offloads, so it need not fit
  double node_Gbps = 0;   // rate of a node's network, in one direction; 0: the platform's
  // The step as a scenario, or the reason why it cannot be one.
  std::string scenario_text;  // TOML
  std::string platform, profile;
  std::string skipped;  // "" when it is modelled
  std::vector<std::string> assumptions;
  // Column and cell of text that changes nothing: remarks in the caveat, columns that are not known.
  std::vector<std::pair<std::string, std::string>> unread;
  // Modes of [overlap] that the row itself says it ran with. A row in which one of them is off is not counted.
  std::set<std::string> own_modes;

  // Returns what was assumed, and what was not read: "caveat not read: one micro-batch".
  std::vector<std::string> assumed() const;
  // The other ways to read a row that leaves the routing or the dispatcher of experts open.
  struct Reading {
    std::string what;           // "natural routing, hybridep"
    std::string scenario_text;  // TOML
    // "": the row's. Scenarios of one dispatcher differ by the loads of experts alone.
    std::string dispatcher;
  };
  std::vector<Reading> readings;
};

// Returns whether the source names a container, so that others of the same project have other releases of the software.
inline bool is_of_container(const PublishedStep& step) { return step.source.find(" container ") != std::string::npos; }

// Returns all rows of a file, each as a scenario or with the reason why not; for a cell that cannot be read the reason
// has file, line and column. scenarios/published.toml defines the words of the cells. Throws Error(input) with file and
// line where the file itself cannot be read: a missing column, text that is not UTF-8.
std::vector<PublishedStep> read_published(const std::string& path);

}  // namespace stretto::validate
