#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace stretto::fuzz {

// A file for readers that take a path. It is one for the process, and is removed with the object.
class InputFile {
 public:
  InputFile()
      : path_((std::filesystem::temp_directory_path() / ("stretto-fuzz-" + std::to_string(::getpid()))).string()) {}
  ~InputFile() { std::remove(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Makes `bytes` the file's contents, and returns its path.
  const std::string& with(std::string_view bytes) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) std::abort();
    return path_;
  }

 private:
  std::string path_;
};

}  // namespace stretto::fuzz
