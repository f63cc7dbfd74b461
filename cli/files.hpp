#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::cli {

// The files that a command reads and writes. No file that is read is written, and none is written twice: every command
// declares its own by add_input() and add_output(), which tests enforce, and calls claim_outputs() before it begins to
// work; without that call nothing can be written.

// A file to be written; "" when none was named, "-" is standard output.
class Output {
 public:
  bool empty() const { return name_.empty(); }
  bool is_standard() const { return name_ == "-"; }
  // Returns the name as it was given: for messages and for other processes.
  const std::string& name() const { return name_; }
  // Returns the path for writing. The output must have been claimed.
  const std::string& path() const;
  // For a folder: returns the path of one of its files, whose names were given to Files::set_folder().
  std::string path(const std::string& file) const;

 private:
  friend class Files;
  std::string name_;
  std::vector<std::string> files_;  // files of a folder
  bool is_claimed_ = false;
};

struct Input {
  std::string what;  // SCENARIO, [training] data, …
  std::string path;
};
// Returns the files that a scenario makes its commands read, and the places where platforms are kept.
std::vector<Input> inputs_of(const Scenario& scenario);

// The inputs and outputs of a command. Refers to the variables of its options, so it cannot be copied.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  // Add an option. An empty name is refused, for inputs and outputs.
  CLI::Option* add_input(CLI::App& command, const std::string& option, std::string& path, const std::string& help);
  CLI::Option* add_output(CLI::App& command, const std::string& option, Output& output, const std::string& help,
                          bool takes_standard = false);
  // Throws Error(input) when an output is a file that is read (compared by inode, whatever path leads there), is the
  // same as another output or as the target of a standard stream, or cannot be opened for writing. Existing files stay
  // unchanged. `more` are inputs in addition to those of the options; in `checkpoint_dir` no output may have the name
  // of a checkpoint. Then removes the temporary files that killed programs have left of these outputs.
  void claim_outputs(std::vector<Input> more = {}, const std::string& checkpoint_dir = "") const;
  void claim_outputs(const Scenario& scenario) const;
  // Sets a path that is written although no option has named it.
  static void set_default(Output& output, const std::string& path);
  // Declares the output a folder, in which files of these names are written. The folder need not exist, but its parent
  // must.
  static void set_folder(Output& output, std::vector<std::string> files);

 private:
  struct DeclaredInput {
    std::string option;
    const std::string* path;
  };
  struct DeclaredOutput {
    std::string option;
    Output* output;
    bool takes_standard;  // "-"
  };
  std::vector<DeclaredInput> inputs_;
  std::vector<DeclaredOutput> outputs_;
};

// Write all or nothing (NewFile). Throw Error(runtime) with the path and the system's reason. An empty output takes
// nothing.
void write_text(const Output& output, const std::string& text);
void write_json(const Output& output, const nlohmann::json& value);

}  // namespace stretto::cli
