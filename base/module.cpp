#include "base/module.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/own_folder.hpp"

namespace stretto {
namespace {

std::filesystem::path path_of(const std::string& name) {
  const auto folder = own_folder();
  // A build folder holds the module next to the program or in the folder above (for tests); an installation holds the
  // module in lib/stretto.
  const auto above = folder.parent_path();
  for (const auto& path : {folder / name, above / name})
    if (std::filesystem::exists(path)) return path;
  return above / "lib/stretto" / name;
}

}  // namespace

void* load_module(const std::string& name, const std::string& symbol) {
  void* module = ::dlopen(path_of(name).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = module ? ::dlsym(module, symbol.c_str()) : nullptr;
  if (!found) throw runtime_failure(::dlerror());
  return found;
}

bool is_module_loaded(const std::string& name) {
  return ::dlopen(path_of(name).c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

}  // namespace stretto
