#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/csv.hpp"
#include "model/scenario/keys.hpp"
#include "validate/published_words.hpp"

namespace stretto::validate {

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
  kDocumentTokens,
  kAttention,
  kRelease,
  kActive,
  kHiddenComm,
  kColumns
};
inline constexpr std::array<const char*, kColumns> kNames = {"id",
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
                                                             "cuda_graph",
                                                             "document_tokens",
                                                             "attention",
                                                             "release",
                                                             "active_s",
                                                             "hidden_comm_s"};

// Thrown for a row that can be read but describes a step that is not modelled.
struct NotModelled {
  std::string why;
};

// Columns of a file whose cells are the value of a key, by their index among a row's cells.
using KeyColumns = std::map<std::size_t, const ScenarioKey*>;
// The names of columns that are neither read nor known to say nothing about how a step is computed.
using OtherColumns = std::map<std::size_t, std::string>;

std::string lower(std::string text);

// The cells of one row and the meanings of their words. Refers to the row, the columns and the words. Functions throw
// Error(input) with file, line and column for a cell that cannot be read, and NotModelled for a word that is refused.
class PublishedCells {
 public:
  // `at`: index of each column among the row's cells; kColumns for one that the file lacks.
  PublishedCells(const CsvRow& row, const std::array<std::size_t, kColumns>& at, const PublishedWords& words)
      : row_(row), at_(at), words_(words) {}

 protected:
  // Returns "" for a cell that is empty or says nothing.
  std::string text(Column column) const;
  // Returns a number up to 2^24; of a column 0 where the cell says nothing.
  std::int64_t count(Column column) const;
  std::int64_t count_in(std::size_t cell) const;
  // Returns whether a cell says that there is nothing to count.
  static bool is_none(std::string_view cell, const ScenarioKey& key);
  // Returns the cell of a key's column as TOML.
  std::string value_of_cell(std::size_t column, const ScenarioKey& key) const;
  // Returns the network of a node that the caveat states, "inter-node 800 Gb/s", in Gb/s; 0: none.
  double rate_of_nodes() const;

  // Returns all meanings of a cell's words; unknown words are left.
  std::set<std::string> taken(Words& left, const std::vector<PublishedWords::Word>& entries) const;
  // Throws where more is left of a cell than words that say nothing and, with `has_labels`, numbers that label it.
  void finish(Words& left, const std::string& column, bool has_labels = false) const;
  // Returns all meanings of a cell whose words must all be known.
  std::set<std::string> all_of(Column column, const std::vector<PublishedWords::Word>& entries) const;
  // Throws where more is left than words that say nothing, and numbers in a cell where they may follow.
  void finish_words(Words& left, Column column, const std::vector<PublishedWords::Word>& entries) const;
  static std::string expected_of(const std::vector<PublishedWords::Word>& entries);

  const CsvRow& row_;
  const std::array<std::size_t, kColumns>& at_;
  const PublishedWords& words_;
};

}  // namespace stretto::validate
