#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::validate {

// Normalises words for comparison: lower case, without blanks, quotes and the signs - _ ( ) : =.
// Bytes outside ASCII are kept unchanged.
std::string folded(std::string_view text);

// A cell whose words are removed from it one after the other.
class Words {
 public:
  explicit Words(std::string_view cell);
  // Returns whether the cell holds one of these folded words, and removes the first one found.
  bool take(const std::vector<std::string>& words);
  // Removes all of them, as often as they are there. Returns whether there was one.
  bool take_all(const std::vector<std::string>& words);
  // Returns whether letters or digits are left.
  bool has_more() const { return !rest().empty(); }
  // Returns what is left in the cell's spelling, in pieces without blanks and signs; only pieces with a letter or a
  // digit.
  std::vector<std::string> rest() const;
  const std::string& cell() const { return cell_; }

 private:
  // Returns where a folded word is in left_, or npos. A word that spans several words of the cell begins with one of
  // them ("mcore" is not in "Megatron-LM core"), and a short one is a word of the cell.
  std::size_t find(const std::string& word) const;

  std::string cell_;
  std::string left_;             // folded; a blank where a word was removed
  std::vector<std::size_t> at_;  // [letter of left_], its place in cell_
};

// Returns whether a piece is a number that labels something: "2.11", "v0.12", "70b", a commit "23e00ed".
bool is_label(std::string_view piece);

// The meanings of words in rows of published steps: scenarios/published.toml, which explains each entry.
struct PublishedWords {
  struct Framework {
    std::vector<std::string> words;
    std::string platform, profile, said;  // profile "": not modelled
    std::vector<std::string> also;        // what its rows may say besides, and what its profile does
    bool shards = false, cuts_vocabulary = false, selective_op = false;
    std::string of_experts;    // the profile of models with experts; "": the same
    std::string flex;          // the library that its recipes exchange rows of experts by, besides NCCL; "": none
    bool local_batch = false;  // its micro-batch is what a rank of data parallelism has of the batch: pipelines cut it
  };
  struct Gpu {
    std::vector<std::string> words;
    std::string platform;           // "": there is no platform
    std::vector<std::string> also;  // what else may stand in the cell
  };
  struct Word {
    std::vector<std::string> words;
    std::string means, refused;
  };
  struct Model {
    std::vector<std::string> words;  // empty: no entry
    std::string refused, keys, said;
    std::int64_t vocab_size = 0;
    bool experts = false;        // `keys` name a model with experts
    bool always = false;         // refused, although columns say the sizes of its experts
    std::string style;           // of a name that is not known: what is assumed of it
    bool is_multi_head = false;  // heads of keys and values are as many as of queries unless the row says otherwise
  };
  struct Sizes {
    std::int64_t layers = 0, hidden = 0, heads = 0;
  };
  struct Habit {
    std::vector<std::string> of;
    std::string task, technique, unless;
    std::vector<std::string> models, sources, precisions, platforms;  // one of each; empty: any
    bool pipeline = false, tensor = false;  // only with more than one stage, or tensor-parallel rank
    bool whole = false;                     // only with one stage
    std::string profile, section, keys, said, refused;
    std::string precision_is;  // the recipe that the row's precision stands for
  };

  std::vector<std::string> nothing;
  std::vector<Framework> frameworks;
  std::vector<Gpu> gpus;
  std::vector<Word> precisions, recomputations, tasks, attentions, techniques, caveats;
  std::vector<Model> models;
  std::map<std::string, Sizes> sizes;  // [folded name of the model]
  std::vector<Habit> habits;
  // Columns: words of a cell that say nothing which a prediction could take into account.
  std::map<std::string, std::vector<std::string>> plain;
  std::vector<std::string> labels;  // columns that say nothing about how a step is computed
  // Columns of what is not modelled: the words of a cell that ask for nothing.
  std::map<std::string, std::vector<std::string>> columns;

  // Returns whether the folded cell is one of the words for "not used", or empty.
  bool is_nothing(std::string_view cell) const;
};

// Reads the words and folds them all. Throws Error(input) with file, line and key.
PublishedWords read_published_words(const std::string& path);

}  // namespace stretto::validate
