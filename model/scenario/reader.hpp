#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// Reads one scenario with many sets of overrides. The file, its profiles and the heads of its platforms are read once,
// so they must not change meanwhile. Thread-safe.
class ScenarioReader {
 public:
  // Reads the file; its text is parsed by read(). Throws Error(input) where it cannot be read.
  explicit ScenarioReader(std::string path);
  // Takes text in place of a file; `name` stands for the file in messages, and paths in the text are not resolved.
  // `origins` are the places that messages name instead of lines of the text, by "section.key"; for a key that the text
  // lacks, or has without an origin, they name `name`. Empty: messages name lines.
  static ScenarioReader of_text(std::string text, std::string name, std::map<std::string, std::string> origins = {});
  ~ScenarioReader();
  ScenarioReader(ScenarioReader&&) noexcept;
  ScenarioReader& operator=(ScenarioReader&&) noexcept;

  // Returns what read_scenario() or parse_scenario() returns with these overrides, and throws what they throw.
  Scenario read(const std::vector<std::string>& overrides) const;
  const std::string& text() const;

 private:
  struct Files;
  ScenarioReader(std::string text, std::string name, bool is_file);
  std::unique_ptr<Files> files_;
};

}  // namespace stretto
