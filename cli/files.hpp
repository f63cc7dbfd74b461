#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::cli {

// The files that a command was told to read and to write. None that is read is written, and none is written twice:
// every command declares its own by add_input() and add_output(), which tests hold it to, and calls claim_outputs()
// before it begins to work, without which nothing can be written.

// A file to be written; "" when none was named, "-" is standard output.
class Output {
 public:
  bool empty() const { return name_.empty(); }
  bool is_standard() const { return name_ == "-"; }
  // As it was given: for messages and for other processes.
  const std::string& name() const { return name_; }
  // To write to. It must have been claimed.
  const std::string& path() const;
  // Of a folder: one of its files, whose names were given to Files::set_folder().
  std::string path(const std::string& file) const;

 private:
  friend class Files;
  std::string name_;
  std::vector<std::string> files_;  // of a folder
  bool is_claimed_ = false;
};

struct Input {
  std::string what;  // SCENARIO, [training] data, …
  std::string path;
};
// The files that a scenario has its commands read, and the places where platforms are kept.
std::vector<Input> inputs_of(const Scenario& scenario);

// The inputs and outputs of a command. Refers to where its options are kept, so it cannot be copied.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  // An empty name is refused, of inputs and outputs.
  CLI::Option* add_input(CLI::App& command, const std::string& option, std::string& path, const std::string& help);
  CLI::Option* add_output(CLI::App& command, const std::string& option, Output& output, const std::string& help,
                          bool takes_standard = false);
  // Throws Error(input) when an output is a file that is read, by its inode, whatever leads there, or is the same as
  // another or as what a standard stream goes to, or cannot be opened for writing. What is there stays as it is. `more`
  // is read besides the inputs of the options; in `checkpoint_dir` no output may be named as checkpoints are. Then
  // removes what killed programs have left of these outputs.
  void claim_outputs(std::vector<Input> more = {}, const std::string& checkpoint_dir = "") const;
  void claim_outputs(const Scenario& scenario) const;
  // Is written though no option has named it.
  static void set_default(Output& output, const std::string& path);
  // Is a folder, in which files of these names are written. It need not be there, but the folder that it is in.
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

// As a whole or not at all (NewFile). Throws Error(runtime) with the path and the system's reason. An empty output
// takes nothing.
void write_text(const Output& output, const std::string& text);
void write_json(const Output& output, const nlohmann::json& value);

}  // namespace stretto::cli
