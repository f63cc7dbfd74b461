#pragma once
#include <stdexcept>
#include <string>
#include <vector>

// Stretto as a library: find_package(Stretto), target Stretto::stretto. The small part of it that stays as it is; all
// results are the JSON of docs/json.md, which is stable too. Functions may be called from one thread at a time.
// Floating point exceptions, signals and the working directory are left alone.
namespace stretto::api {

// A text that a person can act on, in one line: file, line, key, what was expected.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, bool is_input) : std::runtime_error(message), is_input_(is_input) {}
  bool is_input() const { return is_input_; }  // otherwise it failed while it ran

 private:
  bool is_input_;
};

// What a command is told: a scenario's file or the name of one that comes with Stretto, keys that override it
// ("training.lr=3e-4"), and a platform's name or file; "": the scenario's, else what `stretto calibrate` wrote.
// Fusions of [training] without a value are, on the platform of a calibrated GPU, on where it was measured faster with
// them, as the commands have them (docs/gpu.md); a note of simulate() says which. An override gives one a value.
struct Request {
  std::string scenario;
  std::vector<std::string> set = {};
  std::string platform = {};
};

struct SimulateOptions {
  std::string engine = "fluid";  // or "simgrid"
  double backbone_GBps = 0;      // with simgrid: one link that all traffic between ranks (of GPUs: nodes) crosses; 0: none
  bool modes = false;            // also every overlap mode, with advice
};

// `stretto simulate`, without `fits_with`. Throws Error.
std::string simulate(const Request& request, const SimulateOptions& options = {});

// `stretto show`: the schedule, verified; and its gates. Throws Error.
std::string show(const Request& request);
std::string gates(const Request& request);

// `stretto compare` on this machine's processor: trains for as long as it takes. Throws Error.
std::string compare(const Request& request);

// Names of what comes with Stretto: "platforms", "profiles", "models", "modes". Throws Error for another kind.
std::vector<std::string> names(const std::string& kind);

std::string version();

}  // namespace stretto::api
