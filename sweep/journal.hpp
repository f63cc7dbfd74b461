#pragma once
#include <map>
#include <string>

#include "sweep/point.hpp"

namespace stretto::sweep {

// The file of a sweep: one line of JSON for each point, appended and flushed as soon as the point is known, so an
// interrupted or killed sweep loses at most the points that it was working on. Files of several shards of one sweep may
// be written one after the other. Not thread-safe.
class Journal {
 public:
  // Without a path it keeps nothing. With `resumes`, reads the points that the file has; a file that does not exist has
  // none. A line that a kill has cut short is no point, and is counted in cut(); at the end of the file it is removed.
  // Without `resumes` the file must not exist or be empty. While the object lives it holds the file's lock: a second
  // Journal of one file, of whatever process, would write each point twice. Throws Error(input) for a line that is
  // something else and for a locked file, with its holder where the system says it; Error(runtime) with the system's
  // reason.
  Journal(std::string path, bool resumes);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const Point* find(const std::string& key) const;
  std::size_t known() const { return points_.size(); }
  std::size_t cut() const { return cut_; }
  // Appends a point. Throws Error(runtime) where the disk is full.
  void add(const Point& point);

 private:
  [[noreturn]] void fail() const;
  void lock() const;
  void read(bool resumes);

  std::string path_;
  int fd_ = -1;
  std::map<std::string, Point> points_;  // [Point::key]
  std::size_t cut_ = 0;
};

}  // namespace stretto::sweep
