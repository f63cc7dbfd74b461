#include "base/data_folder.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "base/own_folder.hpp"

namespace stretto {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> candidates() {
  std::vector<fs::path> folders;
  if (const char* data = std::getenv("STRETTO_DATA"); data != nullptr && *data != '\0') folders.emplace_back(data);
  const fs::path folder = own_folder();
  if (folder.empty()) return folders;
  folders.push_back(folder.parent_path() / "share/stretto");
  // build/release/stretto, build/release/tests/stretto_tests
  fs::path up = folder;
  for (int level = 0; level < 4; ++level, up = up.parent_path()) folders.push_back(up / "scenarios");
  return folders;
}

}  // namespace

bool is_data_name(const std::string& text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
                              std::string::npos;
}

std::vector<std::string> data_names(const std::string& kind) {
  std::vector<std::string> names;
  for (const fs::path& folder : candidates()) {
    std::error_code problem;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder / kind, problem))
      if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string data_path(const std::string& file) {
  for (const fs::path& folder : candidates()) {
    std::error_code problem;
    if (fs::exists(folder / file, problem)) return (folder / file).string();
  }
  throw input_error("no " + file + " in any folder of files that come with Stretto; STRETTO_DATA names one");
}

std::string data_file(const std::string& kind, const std::string& name) {
  for (const fs::path& folder : candidates()) {
    std::error_code problem;
    const fs::path file = folder / kind / (name + ".toml");
    if (fs::exists(file, problem)) return file.string();
  }
  const std::vector<std::string> names = data_names(kind);
  const std::string what = kind.substr(0, kind.size() - 1);
  if (names.empty()) throw input_error("no " + what + " \"" + name + "\": no folder of " + kind + " was found");
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  const std::string nearest = nearest_spelling(name, names);
  throw input_error("no " + what + " \"" + name + "\": expected one of " + list +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

}  // namespace stretto
