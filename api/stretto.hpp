#pragma once
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// Stretto as a library: find_package(Stretto), target Stretto::stretto. This small interface is stable, and so are its
// results, which are the JSON of docs/json.md. Functions may be called from one thread at a time. The library leaves
// floating point exceptions, signals and the working directory alone.
namespace stretto::api {

// A failure with a text of one line that a person can act on: file, line, key and the expected value.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, bool is_input) : std::runtime_error(message), is_input_(is_input) {}
  bool is_input() const { return is_input_; }  // true: the input is wrong; false: the work itself failed

 private:
  bool is_input_;
};

// The inputs of a command: a scenario (a file, or the name of one that comes with Stretto), keys that override the
// scenario ("training.lr=3e-4"), and a platform's name or file. Without a platform the commands take the scenario's,
// and without that the platform that `stretto calibrate` wrote. A platform of a calibrated GPU turns on each fusion of
// [training] that has no value and was measured faster, as it does in the commands (docs/gpu.md); a note of simulate()
// says which. An override gives a fusion a value.
struct Request {
  std::string scenario;
  std::vector<std::string> set = {};
  std::string platform = {};
};

struct SimulateOptions {
  std::string engine = "fluid";  // or "simgrid"
  // GB/s of one link that all traffic between ranks (GPUs: between nodes) crosses; 0: none. It needs engine "simgrid".
  double backbone_GBps = 0;
  bool modes = false;   // every overlap mode is predicted too, with advice
  bool limits = false;  // on published GPUs: the step by each number, on better machines, by single changes
  bool fit = false;     // changes are searched with which the step fits into memory
};

// Predicts a step: `stretto simulate`. Throws Error.
std::string simulate(const Request& request, const SimulateOptions& options = {});

// The points of a sweep, one after the other (`stretto sweep`). `over` are axes as --over takes them. Move-only.
class Sweep {
 public:
  // Throws Error.
  Sweep(Request request, const std::vector<std::string>& over, std::size_t best = 10, bool all = false);
  ~Sweep();
  Sweep(Sweep&&) noexcept;
  Sweep& operator=(Sweep&&) noexcept;
  // Returns the next point as JSON; "" after the last. A point whose bound is above the best-th step so far is
  // "slower" and not simulated, unless `all`. Throws Error.
  std::string next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Return the verified schedule (`stretto show`) and the gates of its overlap modes. Throw Error.
std::string show(const Request& request);
std::string gates(const Request& request);

// Trains every mode on this machine's processor and compares (`stretto compare`); returns when all have run. Throws
// Error.
std::string compare(const Request& request);

struct TrainOptions {
  // Called after every step with its row of `steps`. When it returns false, training stops cleanly: after the loss on
  // validation data and the checkpoint that are due, and with a checkpoint where the scenario has a checkpoint_dir.
  std::function<bool(const std::string& step)> on_step = {};
  // Called with each line that the command prints about checkpoints and weights, warnings included.
  std::function<void(const std::string& line)> on_message = {};
  // Polled between steps and while one runs, from the calling thread; true stops as on_step() does.
  std::function<bool()> stop = {};
};

// Trains on this machine's processor, with all ranks in this process, or resumes (`stretto train`). The callbacks must
// not throw; they may call the library. Returns the command's JSON, with null for values that only the command
// measures (`mfu`, `hfu`). Throws Error.
std::string train(const Request& request, const TrainOptions& options = {});

// Settings of another program as a scenario (`stretto import`): a file, or flags.
struct ImportRequest {
  std::string file, flags;               // one of them
  std::string format;                    // "megatron", "yaml", "torchtitan", "bridge"; "": by the file's suffix
  std::vector<std::string> set = {};     // "section.key=value" of the scenario
  std::vector<std::string> environment;  // "NAME=VALUE" that a script finds set
  long long gpus = 0;                    // 0: as the settings say
};
// Return {"text": …, "notes": […]}: the scenario in TOML, and a scenario in the terms of "megatron", "bridge" or
// "torchtitan" (`stretto export --format`). Throw Error.
std::string import_settings(const ImportRequest& request);
std::string export_settings(const Request& request, const std::string& format);

struct TraceRequest {
  std::string trace;            // a file, or a folder with one of each rank
  std::string section, window;  // as the command's options; "": none
  long long rank = -1;          // below 0: the trace's
  std::string model;            // a name, without a scenario
};
// Explains a run against the predicted step (`stretto diagnose`). Without a scenario it returns the one that the trace
// shows: `scenario` in TOML, `keys`, and `not_known`. Throws Error.
std::string diagnose(const Request& request, const TraceRequest& trace);

// Returns the names of files that come with Stretto. `kind` is "platforms", "profiles", "models" or "modes". Throws
// Error for another kind.
std::vector<std::string> names(const std::string& kind);

std::string version();

}  // namespace stretto::api
