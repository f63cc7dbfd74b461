#include "base/gpu_name.hpp"

#include <algorithm>
#include <vector>

namespace stretto {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

// Returns the words in capitals: runs of letters and digits.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const char capital = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    if (is_capital(capital) || is_digit(capital))
      words.back() += capital;
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

// A model is one to three letters, digits, and maybe a letter: H100, GB200, MI300X, L40S, T4. Boards (SXM5, NVL72) and
// memory (HBM3, 80GB) have names like it.
bool is_model(const std::string& word) {
  for (const char* other : {"SXM", "NVL", "HBM", "PCI", "DDR", "CUDA", "RTX", "GTX"})
    if (word.starts_with(other)) return false;
  const auto letters = std::find_if_not(word.begin(), word.end(), is_capital);
  const auto digits = std::find_if_not(letters, word.end(), is_digit);
  const auto before = letters - word.begin(), count = digits - letters, after = word.end() - digits;
  return before >= 1 && before <= 3 && count >= (before == 1 ? 1 : 2) && count <= 4 && after <= 1 &&
         std::all_of(digits, word.end(), is_capital);
}

}  // namespace

std::string gpu_model(std::string_view device) {
  const std::vector<std::string> words = words_of(device);
  const auto model = std::find_if(words.begin(), words.end(), is_model);
  if (model == words.end()) return "";
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  return *model + (has("PCIE") ? " PCIe" : has("NVL") ? " NVL" : "");
}

bool are_other_gpus(std::string_view a, std::string_view b) {
  const std::string one = gpu_model(a), other = gpu_model(b);
  return !one.empty() && !other.empty() && one != other;
}

}  // namespace stretto
