#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::validate {

// How words are compared: in lower case, without blanks, quotes and the signs - _ ( ) : =.
std::string folded(std::string_view text);

// A cell whose words are taken out of it one after the other.
class Words {
 public:
  explicit Words(std::string_view cell) : left_(folded(cell)) {}
  // Whether it holds one of these folded words. The first that it does is no longer in it.
  bool take(const std::vector<std::string>& words);
  // Whether letters or digits are left.
  bool has_more() const;

 private:
  std::string left_;
};

// What the words in rows of published steps mean: scenarios/published.toml, which says what each entry is.
struct PublishedWords {
  struct Framework {
    std::vector<std::string> words;
    std::string platform, profile, said;  // profile "": not modelled
    bool shards = false, cuts_vocabulary = false, selective_op = false;
  };
  struct Gpu {
    std::vector<std::string> words;
    std::string platform;  // "": there is none
  };
  struct Word {
    std::vector<std::string> words;
    std::string means, refused;
  };
  struct Model {
    std::vector<std::string> words;
    std::string refused, keys, said;
    std::int64_t vocab_size = 0;
  };
  struct Sizes {
    std::int64_t layers = 0, hidden = 0, heads = 0;
  };
  struct Habit {
    std::vector<std::string> of;
    std::string model, source, task, precision, technique, unless;
    bool pipeline = false, tensor = false;  // only of more than one stage, or tensor-parallel rank
    std::string profile, section, keys, said;
  };

  std::vector<std::string> nothing;
  std::vector<Framework> frameworks;
  std::vector<Gpu> gpus;
  std::vector<Word> precisions, recomputations, tasks, techniques, caveats;
  std::vector<Model> models;
  std::map<std::string, Sizes> sizes;  // by the model's name, folded
  std::vector<Habit> habits;

  bool is_nothing(std::string_view cell) const;
};

// Throws Error(input) with file, line and key. All words are folded.
PublishedWords read_published_words(const std::string& path);

}  // namespace stretto::validate
