#include "base/module.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "base/error.hpp"

namespace stretto {
namespace {

std::filesystem::path path_of(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto path = folder / name;
  return std::filesystem::exists(path) ? path : folder.parent_path() / name;
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
