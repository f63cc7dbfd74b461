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
  explicit Words(std::string_view cell) : left_(folded(cell)) {}
  // Returns whether the cell holds one of these folded words, and removes the first one found.
  bool take(const std::vector<std::string>& words);
  // Returns whether letters or digits are left.
  bool has_more() const;

 private:
  std::string left_;
};

// The meanings of words in rows of published steps: scenarios/published.toml, which explains each entry.
struct PublishedWords {
  struct Framework {
    std::vector<std::string> words;
    std::string platform, profile, said;  // profile "": not modelled
    bool shards = false, cuts_vocabulary = false, selective_op = false;
    std::string of_experts;  // the profile of models with experts; "": the same
    std::string flex;        // the library that its recipes exchange rows of experts by, besides NCCL; "": none
  };
  struct Gpu {
    std::vector<std::string> words;
    std::string platform;  // "": there is no platform
  };
  struct Word {
    std::vector<std::string> words;
    std::string means, refused;
  };
  struct Model {
    std::vector<std::string> words;
    std::string refused, keys, said;
    std::int64_t vocab_size = 0;
    bool experts = false;  // `keys` name a model with experts
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
  std::vector<Word> precisions, recomputations, tasks, techniques, caveats;
  std::vector<Model> models;
  std::map<std::string, Sizes> sizes;  // [folded name of the model]
  std::vector<Habit> habits;

  // Returns whether the folded cell is one of the words for "not used", or empty.
  bool is_nothing(std::string_view cell) const;
};

// Reads the words and folds them all. Throws Error(input) with file, line and key.
PublishedWords read_published_words(const std::string& path);

}  // namespace stretto::validate
