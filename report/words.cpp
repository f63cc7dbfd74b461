#include "report/words.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/toml_text.hpp"

namespace stretto {
namespace {

struct WordsFile {
  std::map<std::string, std::string> models, profiles;
  std::map<std::string, std::pair<std::string, std::string>> platforms;  // in full, in short
  std::vector<Term> terms;
};

WordsFile read_words() {
  WordsFile words;
  std::string path;
  try {
    path = data_path("words.json");
  } catch (const Error&) {
    return words;  // a program that was copied without its files shows names as they are
  }
  try {
    const nlohmann::json json = nlohmann::json::parse(toml_text(path));
    json.at("models").get_to(words.models);
    json.at("profiles").get_to(words.profiles);
    json.at("platforms").get_to(words.platforms);
    for (const nlohmann::json& term : json.at("terms"))
      words.terms.push_back({term.at("name").get<std::string>(), term.at("meaning").get<std::string>()});
  } catch (const nlohmann::json::exception& problem) {
    throw input_error(path + ": expected names and terms as Stretto ships them: " + problem.what());
  }
  return words;
}

const WordsFile& words_file() {
  static const WordsFile words = read_words();
  return words;
}

std::string in_words(const std::map<std::string, std::string>& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

}  // namespace

std::string model_in_words(const std::string& name) { return in_words(words_file().models, name); }
std::string profile_in_words(const std::string& name) { return in_words(words_file().profiles, name); }

std::string platform_in_words(const std::string& name) {
  const auto found = words_file().platforms.find(name);
  return found == words_file().platforms.end() ? name : found->second.first;
}

std::string platform_in_short(const std::string& name) {
  const auto found = words_file().platforms.find(name);
  return found == words_file().platforms.end() ? name : found->second.second;
}

const std::vector<Term>& terms() { return words_file().terms; }

}  // namespace stretto
