#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace stretto {

// A file that is written and comes to be as a whole: a kill at any moment and a full disk leave either all of it or
// what was there before. It is written as `path`.tmp, which goes when this goes out of scope before finish().
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
  [[noreturn]] void fail(int error) const;

  std::string path_, temporary_;  // temporary_ is "" where it is written as it is
  int fd_ = -1;
  bool is_synced_ = false;
};

// Makes a folder that is not there. Throws Error(runtime).
void make_folder(const std::string& path);
// Where a path leads to through links, whether or not something is there.
std::string destination_of(const std::string& path);
// The name under which a NewFile of `path` is written until it is whole.
std::string temporary_of(const std::string& path);

// Names in a folder that were made, or deleted, are durable. Throws Error(runtime).
void sync_directory(const std::string& dir);

}  // namespace stretto
