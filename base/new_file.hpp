#pragma once
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// A file that is written and comes to be as a whole: a kill at any moment and a full disk leave either all of it or
// what was there before. Until then it is a file of its own beside `path`, under a name that nobody can foresee,
// `path`.0123456789abcdef.tmp; so nothing else is opened, followed or replaced on the way, and two processes that write
// one path do not meet: the last to finish has its name. The temporary file goes when this goes out of scope before
// finish(); what a killed process leaves of it is removed by remove_left_overs().
//
// Where `path` is a device, a pipe or a socket it is written as it is; where it is a link, the file that it leads to
// is. All throw Error(runtime) with the path and the system's reason.
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Makes its contents durable, under its temporary name; what follows can hardly fail any more.
  void sync();
  // Makes it durable and gives it its name.
  void finish();

 private:
  void open_temporary(unsigned mode);
  [[noreturn]] void fail(int error) const;

  std::string path_, destination_, temporary_;  // temporary_ is "" where it is written as it is
  int fd_ = -1;
  bool is_synced_ = false;
};

// A folder of files that belong together: where it is not kept, as when a disk is full or a user has had enough, the
// files that were added go, and so does the folder if it was made here.
class NewFolder {
 public:
  // Makes it where it is not there. Throws Error(runtime).
  explicit NewFolder(std::string path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Writes a file, which has its name from then on. Throws as NewFile does.
  void add(const std::string& path, std::string_view text);
  void keep() { is_kept_ = true; }

 private:
  std::string path_;
  std::vector<std::string> files_;
  bool is_made_ = false, is_kept_ = false;
};

// Where a path leads to through links, whether or not something is there.
std::string destination_of(const std::string& path);

// "a.json" for the file name "a.json.0123456789abcdef.tmp", as which a NewFile is written; "" for all other names.
std::string name_behind_temporary(std::string_view file_name);
// Removes from `folder` what killed processes have left of NewFiles of these names: regular files of this user that no
// process holds. A writer holds its file by flock; where the file system knows no locks nothing is removed. Throws
// nothing.
void remove_left_overs(const std::string& folder, const std::set<std::string>& names);
// The same of one path, in the folder that it leads to.
void remove_left_overs(const std::string& path);

// Names in a folder that were made, or deleted, are durable. Throws Error(runtime).
void sync_directory(const std::string& dir);

}  // namespace stretto
