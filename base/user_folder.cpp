#include "base/user_folder.hpp"

#include <cstdlib>
#include <filesystem>

namespace stretto {

std::string user_folder(const char* xdg, const char* below_home) {
  namespace fs = std::filesystem;
  if (const char* folder = std::getenv(xdg); folder != nullptr && fs::path(folder).is_absolute())
    return (fs::path(folder) / "stretto").string();
  if (const char* home = std::getenv("HOME"); home != nullptr && fs::path(home).is_absolute())
    return (fs::path(home) / below_home / "stretto").string();
  return "";
}

}  // namespace stretto
