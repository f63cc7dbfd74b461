#include "cli/files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/new_file.hpp"
#include "base/read_file.hpp"
#include "cli/commands.hpp"
#include "cli/terminal.hpp"
#include "exec/state/checkpoint.hpp"
#include "exec/state/weights.hpp"
#include "predict/inputs.hpp"

namespace stretto::cli {
namespace {

namespace fs = std::filesystem;

// Identifies a file by its inode; a file that does not exist yet by its folder's inode and its name.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;
  bool operator==(const Identity&) const = default;
};

// nullopt: several writers are allowed (a device, a pipe), or the file cannot be written.
std::optional<Identity> identity_of(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  return Identity{info.st_dev, info.st_ino, ""};
}
std::optional<Identity> identity_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return identity_of(info);
  const fs::path destination = destination_of(path);
  const std::string folder = destination.parent_path().string();
  if (::stat(folder.empty() ? "." : folder.c_str(), &info) != 0) return std::nullopt;
  return Identity{info.st_dev, info.st_ino, destination.filename().string()};
}

// The user of a file: an option, a key, a stream.
struct Holder {
  std::string what;
  Identity identity;
};

void add(std::vector<Holder>& holders, const std::string& what, const std::optional<Identity>& identity) {
  if (identity) holders.push_back({what, *identity});
}

const Holder* find(const std::vector<Holder>& holders, const std::optional<Identity>& identity) {
  if (!identity) return nullptr;
  for (const Holder& holder : holders)
    if (holder.identity == *identity) return &holder;
  return nullptr;
}

// Throws Error(input) unless the file can be opened for writing. Leaves no file.
void require_writable(const std::string& path) try {
  struct stat info {};
  const bool is_there = ::stat(path.c_str(), &info) == 0;
  if (is_there && S_ISDIR(info.st_mode)) throw system_error(path, "cannot be written", EISDIR);
  if (is_there && ::access(path.c_str(), W_OK) != 0) throw system_error(path, "cannot be written", errno);
  // A pipe is not opened, because that would wait for its reader, and end it.
  if (!is_there || S_ISREG(info.st_mode)) NewFile file(path);
} catch (const Error& error) {
  throw input_error(error.what());
}

// Throws Error(input) unless files can be made in the folder, or the folder can be made.
void require_folder(const std::string& path) {
  std::error_code problem;
  const fs::path parent = fs::path(path).lexically_normal().parent_path();
  const bool is_there = fs::exists(path, problem);
  if (is_there && !fs::is_directory(path, problem)) throw system_error(path, "cannot be a folder", ENOTDIR);
  const std::string place = is_there ? path : parent.empty() ? "." : parent.string();
  if (::access(place.c_str(), W_OK | X_OK) != 0)
    throw input_error(system_error(path, "cannot be written", errno).what());
}

// A shell passes an empty word for a variable that is not set. Treated as no file, it would lose the output silently.
CLI::Validator is_named() {
  return CLI::Validator([](std::string& name) { return name.empty() ? "expected a file, got an empty name" : ""; }, "");
}

std::vector<Holder> standard_streams() {
  std::vector<Holder> streams;
  struct stat info {};
  for (const auto& [stream, what] : {std::pair{STDOUT_FILENO, "standard output"}, {STDERR_FILENO, "standard error"}})
    if (::fstat(stream, &info) == 0) add(streams, what, identity_of(info));
  return streams;
}

}  // namespace

const std::string& Output::path() const {
  assert(is_claimed_ && "claim_outputs() comes before any work");
  return name_;
}

std::string Output::path(const std::string& file) const {
  assert(std::find(files_.begin(), files_.end(), file) != files_.end());
  return (fs::path(path()) / file).string();
}

std::vector<Input> inputs_of(const Scenario& scenario) {
  std::vector<Input> inputs = {{"the scenario", scenario.file}, {"its platform", scenario.platform}};
  for (const std::vector<std::string>* paths : {&scenario.training.data, &scenario.training.validation_data})
    for (const std::string& path : *paths)
      for (const std::string& file : exec::files_of_data(path))
        inputs.push_back({paths == &scenario.training.data ? "[training] data" : "[training] validation_data", file});
  if (!scenario.training.load.empty())
    for (const std::string& file : exec::files_of_weights(scenario.training.load))
      inputs.push_back({"[training] load", file});
  for (const char* backend : {"host", "cuda"})
    if (std::string path = predict::default_platform_path(backend); !path.empty())
      inputs.push_back({"what `stretto calibrate` wrote", std::move(path)});
  std::error_code ignored;
  if (const std::string& dir = scenario.training.checkpoint_dir; !dir.empty())
    for (fs::directory_iterator it(dir, ignored), end; !ignored && it != end; it.increment(ignored))
      if (exec::is_of_checkpoints(it->path().filename().string()))
        inputs.push_back({"[training] checkpoint_dir", it->path().string()});
  return inputs;
}

CLI::Option* Files::add_input(CLI::App& command, const std::string& option, std::string& path,
                              const std::string& help) {
  CLI::Option* added = command.add_option(option, path, help)->type_name("INPUT")->check(is_named());
  inputs_.push_back({added->get_name(), &path});
  return added;
}

CLI::Option* Files::add_output(CLI::App& command, const std::string& option, Output& output, const std::string& help,
                               bool takes_standard) {
  CLI::Option* added = command.add_option(option, output.name_, help)->type_name("OUTPUT")->check(is_named());
  outputs_.push_back({added->get_name(), &output, takes_standard});
  return added;
}

void Files::claim_outputs(std::vector<Input> more, const std::string& checkpoint_dir) const {
  for (const DeclaredInput& input : inputs_) more.insert(more.begin(), {input.option, *input.path});
  std::vector<Holder> read;
  for (const Input& input : more)
    if (!input.path.empty()) add(read, input.what, identity_of(input.path));
  std::vector<Holder> written = standard_streams();
  for (const Holder& stream : written)
    if (const Holder* input = find(read, stream.identity))
      throw input_error(fmt::format("{} goes to a file that is read: {}; expected another", stream.what, input->what));
  const DeclaredOutput* standard = nullptr;
  for (const DeclaredOutput& declared : outputs_) {
    Output& output = *declared.output;
    output.is_claimed_ = true;
    if (output.empty()) continue;
    if (output.is_standard()) {
      if (!declared.takes_standard) throw input_error(declared.option + " -: expected a file, and not standard output");
      if (standard != nullptr)
        throw input_error(fmt::format("{} -: {} goes to standard output already; expected a file", declared.option,
                                      standard->option));
      standard = &declared;
      keep_standard_output_for_data();
      continue;
    }
    const std::string what = declared.option + " " + output.name();
    std::vector<Holder> own;
    const auto claim = [&](const std::string& path) {
      const std::optional<Identity> identity = identity_of(path);
      if (const Holder* input = find(read, identity))
        throw input_error(
            fmt::format("{}: would overwrite what is read: {}; expected another file", what, input->what));
      if (const Holder* other = find(written, identity))
        throw input_error(
            fmt::format("{}: would overwrite what is written: {}; expected another file", what, other->what));
      const fs::path destination = destination_of(path);
      std::error_code ignored;
      if (!checkpoint_dir.empty() && exec::is_of_checkpoints(destination.filename().string()) &&
          fs::equivalent(destination.has_parent_path() ? destination.parent_path() : ".", checkpoint_dir, ignored))
        throw input_error(
            fmt::format("{}: would be taken for a checkpoint of {}; expected another file", what, checkpoint_dir));
      add(own, declared.option, identity);
    };
    const bool is_folder = !output.files_.empty();
    std::error_code ignored;
    if (!is_folder || !fs::is_directory(output.name_, ignored)) claim(output.name_);
    if (is_folder) {
      require_folder(output.name_);
      for (const std::string& file : output.files_) {
        const std::string path = (fs::path(output.name_) / file).string();
        claim(path);
        if (fs::exists(path, ignored)) require_writable(path);
      }
    } else {
      require_writable(output.name_);
    }
    written.insert(written.end(), own.begin(), own.end());
  }
  for (const DeclaredOutput& declared : outputs_) {
    const Output& output = *declared.output;
    if (output.empty() || output.is_standard()) continue;
    if (output.files_.empty())
      remove_left_overs(output.name_);
    else
      remove_left_overs(output.name_, {output.files_.begin(), output.files_.end()});
  }
}

void Files::claim_outputs(const Scenario& scenario) const {
  claim_outputs(inputs_of(scenario), scenario.training.checkpoint_dir);
}

void Files::set_default(Output& output, const std::string& path) {
  if (output.empty()) output.name_ = path;
}

void Files::set_folder(Output& output, std::vector<std::string> files) { output.files_ = std::move(files); }

void write_text(const Output& output, const std::string& text) {
  if (output.empty()) return;
  if (output.is_standard()) {
    write_to_standard_output(text);
    return;
  }
  NewFile file(output.path());
  file.write(text);
  file.finish();
}

void write_json(const Output& output, const nlohmann::json& value) {
  if (!output.empty()) write_text(output, value.dump(2) + "\n");
}

}  // namespace stretto::cli
