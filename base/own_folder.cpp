#include "base/own_folder.hpp"

#include <dlfcn.h>

namespace stretto {

std::filesystem::path own_folder() {
  std::error_code problem;
  Dl_info info{};
  // For a program the loader knows only the name that the program was called by, which need not be its path.
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr) {
    const std::filesystem::path file = info.dli_fname;
    if (file.filename().string().find(".so") != std::string::npos)
      return std::filesystem::canonical(file, problem).parent_path();
  }
  return std::filesystem::read_symlink("/proc/self/exe", problem).parent_path();
}

}  // namespace stretto
