#pragma once
#include <string>
#include <vector>

namespace stretto {

// Names in the words of the field, of scenarios/words.json, which the page reads too. Each returns a name that is not
// there as it is. They read the file once, and throw Error(input) where it is not as Stretto ships it. Without the file
// every name stays as it is. Thread-safe.
std::string model_in_words(const std::string& name);     // "llama3-70b": "Llama 3 70B"
std::string platform_in_words(const std::string& name);  // "h100-sxm": "H100 SXM 80 GB"
std::string platform_in_short(const std::string& name);  // "h100-sxm": "H100"
std::string profile_in_words(const std::string& name);   // "nemo-dgxc": "NeMo"

// A term of the results and its meaning in one to three sentences.
struct Term {
  std::string name, meaning;
};
const std::vector<Term>& terms();

}  // namespace stretto
