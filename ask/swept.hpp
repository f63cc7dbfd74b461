#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ask/request.hpp"
#include "base/checksum.hpp"
#include "base/toml.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"
#include "sweep/space.hpp"

namespace stretto::ask {

// The request of a search: a scenario, and the axes along which it varies.
struct SweepRequest : Request {
  std::vector<std::string> over = {};  // axes, "key=value,value" or "key=legal"
  std::size_t best = 10;               // points that are simulated in full
  bool all = false;                    // every point that fits is simulated, not only those that may be among the best
  bool names_platform = false;         // the platform is the user's word, not a default
  // Takes the shard-th of this many parts.
  std::int64_t shard = 0, shards = 1;
};

// The scenario that a sweep varies: a file of the user's, or the text that `plan` has made.
struct Swept {
  std::string text;  // contents of the scenario
  // Returns the scenario with overrides, as --set takes them, on a platform ("": its own). Called from several threads.
  // Throws Error(input) where the reader refuses them.
  std::function<Scenario(const std::vector<std::string>& set, const std::string& platform)> read;
  std::function<TomlTable()> axes;  // the table [sweep] of the scenario
  std::string command;              // the command of one point, without its settings; "" where there is none
  // Returns a scenario with these settings on the platform ("": that of the request); null where the scenario is a file
  // of the user's.
  std::function<std::string(const std::vector<std::string>& set, const std::string& platform)> text_of = nullptr;
};
// Returns a scenario file of the request. Throws Error(input) where the file cannot be read.
Swept swept_of(const Request& request);

// A sweep that has been read: its axes, and each scenario and platform on them. Thread-safe.
class SweptSpace {
 public:
  // Throws Error(input): the scenario cannot be read as it is nor with the first values of its axes, an option says
  // what every point replaces, a platform or a key of [run] is wrong; and as sweep::read_space() does.
  SweptSpace(SweepRequest request, Swept swept);

  const SweepRequest request;
  const Swept swept;
  // The scenario that the points are compared with, and from which they have what no axis changes.
  const Scenario& scenario() const { return base_.scenario; }
  const std::string& why_not_own() const { return base_.why_not_own; }  // "" where it is the user's as it is
  const sweep::Space& space() const { return space_; }

  // Returns the scenario of a point. Throws Error(input) where it is refused: the point's reason.
  Scenario read(const sweep::PointSettings& settings) const;
  // Returns the platform of a point, which lives as long as this object; each is read once. Throws as
  // predict::read_platform_input() does.
  const sim::Platform& platform(const sweep::PointSettings& settings = {});
  // Returns Point::key of a point.
  std::string key(const sweep::PointSettings& settings);

 private:
  struct Base {
    Scenario scenario;
    std::string platform;  // as the request names it; "": the scenario's
    std::string why_not_own;
  };
  Base read_base() const;
  void require_acting() const;
  const std::string& digest(const std::string& platform);

  Base base_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<sim::Platform>> platforms_;
  std::map<std::string, std::string> digests_;  // what stands for the contents of a platform's files
  Checksum of_scenario_;
  sweep::Space space_;
};

}  // namespace stretto::ask
