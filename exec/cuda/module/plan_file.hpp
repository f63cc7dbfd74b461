#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stretto::cuda {

// What tuning found, in a file that outlasts the process: numbers by numbers, which the caller reads as it wrote them.
// A file that is damaged, or was made for something else, counts as none, and a note says so; it is replaced by the
// next save(). Nothing here throws: a program that cannot keep its plans makes them again.
class PlanFile {
 public:
  using Numbers = std::vector<std::int64_t>;

  // Keeps nothing.
  PlanFile() = default;
  // `made_for`: all that the plans depend on beside their keys, a line ("cuBLAS 13.0.2, driver 13000, …"). Files of
  // different such lines lie beside each other in `folder`, which is made when it is needed.
  PlanFile(const std::string& folder, const std::string& made_for);

  // null: none is known.
  const Numbers* find(const Numbers& key) const;
  void put(const Numbers& key, Numbers plan);
  // Writes the file, as a whole or not at all, if something was put since the last time; what other processes wrote
  // meanwhile stays.
  void save();

  std::size_t size() const { return plans_.size(); }
  const std::string& path() const { return path_; }
  const std::string& note() const { return note_; }  // "": all is well

 private:
  std::map<Numbers, Numbers> read();

  std::string folder_, path_, made_for_, note_;
  std::map<Numbers, Numbers> plans_;
  bool is_new_ = false;
};

// Where plans are kept: $XDG_CACHE_HOME/stretto, by default ~/.cache/stretto; "" without a home.
std::string plan_folder();

}  // namespace stretto::cuda
