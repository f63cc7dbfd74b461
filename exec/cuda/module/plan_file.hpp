#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stretto::cuda {

// Tuning results in a file that outlasts the process: numbers by numbers, which the caller reads as it wrote them. A
// file that is damaged, or was made for something else, counts as empty, and a note says so; the next save() replaces
// it. Functions do not throw: a program that cannot keep its plans makes them again.
class PlanFile {
 public:
  using Numbers = std::vector<std::int64_t>;

  // Keeps nothing on disk.
  PlanFile() = default;
  // `made_for`: all that the plans depend on besides their keys, in one line ("cuBLAS 13.0.2, driver 13000, …"). Each
  // such line has a file of its own in `folder`, which is made when it is needed.
  PlanFile(const std::string& folder, const std::string& made_for);

  // Returns the plan; null when none is known.
  const Numbers* find(const Numbers& key) const;
  void put(const Numbers& key, Numbers plan);
  // Writes the file, all or nothing, if something was put since the last time; plans that other processes wrote
  // meanwhile stay.
  void save();

  std::size_t size() const { return plans_.size(); }
  const std::string& path() const { return path_; }
  const std::string& note() const { return note_; }  // "": no problem

 private:
  std::map<Numbers, Numbers> read();

  std::string folder_, path_, made_for_, note_;
  std::map<Numbers, Numbers> plans_;
  bool is_new_ = false;
};

// Returns the folder of plans: $XDG_CACHE_HOME/stretto, by default ~/.cache/stretto; "" without a home.
std::string plan_folder();

}  // namespace stretto::cuda
