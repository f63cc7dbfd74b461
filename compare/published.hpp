#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::compare {

// A training step that somebody measured and published: one row of a file whose columns
// docs/validate.md lists. Fields are the text of the cells, "" where the row says nothing.
struct PublishedStep {
  std::string id, source, gpu, model, framework, task, cluster;
  std::string recompute, precision;
  std::int64_t gpus = 0;
  double step_s = 0;
  double node_Gbps = 0;  // of a node's network, one direction; 0: the platform's
  // What it is as a scenario, or why it cannot be one.
  std::string scenario_text;  // TOML
  std::string platform, profile;
  std::string skipped;  // "" when it is modelled
  std::vector<std::string> assumptions;
};

// All rows of a file, each as a scenario or with the reason why not. Throws Error(input) with file and line: a column
// that is missing, a number that is none.
std::vector<PublishedStep> read_published(const std::string& path);

}  // namespace stretto::compare
