#pragma once
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// A file that appears as a whole. A kill at any moment or a full disk leaves either the complete new file or the old
// one. The text is first written to a temporary file in the same folder, `path`.0123456789abcdef.tmp. Nobody can
// foresee that name, so the writer opens, follows and replaces nothing else, and two processes that write one path do
// not disturb each other: the last one to finish has its file under the name. The destructor removes the temporary file
// when finish() was not called; remove_left_overs() removes the files of killed processes.
//
// A device, a pipe or a socket is written directly. When `path` is a link, the file that the link leads to is written.
// All members throw Error(runtime) with the path and the system's reason.
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Makes the contents durable under the temporary name. finish() can then hardly fail any more.
  void sync();
  // Makes the file durable and gives the file its final name.
  void finish();

 private:
  void open_temporary(unsigned mode);
  [[noreturn]] void fail(int error) const;

  std::string path_, destination_, temporary_;  // temporary_ is "" for a file that is written directly
  int fd_ = -1;
  bool is_synced_ = false;
};

// A folder of files that belong together. The destructor removes the added files, and the folder if this object made
// it, unless keep() was called; so a full disk or an interrupt leaves nothing.
class NewFolder {
 public:
  // Makes the folder if it does not exist. Throws Error(runtime).
  explicit NewFolder(std::string path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Writes a file, which has its final name at once. Throws as NewFile does.
  void add(const std::string& path, std::string_view text);
  void keep() { is_kept_ = true; }

 private:
  std::string path_;
  std::vector<std::string> files_;
  bool is_made_ = false, is_kept_ = false;
};

// Returns the path that `path` leads to through links, whether or not a file exists there.
std::string destination_of(const std::string& path);

// "a.json" for the file name "a.json.0123456789abcdef.tmp", as which a NewFile is written; "" for all other names.
std::string name_under_temporary(std::string_view file_name);
// Removes from `folder` the temporary files that killed processes left of files with these names: regular files of this
// user that no process has locked. A writer locks its file with flock; on a file system without locks nothing is
// removed. Throws nothing.
void remove_left_overs(const std::string& folder, const std::set<std::string>& names);
// Removes the temporary files of one path, from the folder that the path leads to.
void remove_left_overs(const std::string& path);

// Makes created and deleted names of a folder durable. Throws Error(runtime).
void sync_directory(const std::string& dir);

}  // namespace stretto
