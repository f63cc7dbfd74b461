#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "sim/network/simgrid.hpp"

namespace stretto::sim {
namespace {

MakeSimgridNetwork* load() {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  auto path = folder / "libstretto_simgrid.so";
  if (!std::filesystem::exists(path)) path = folder.parent_path() / path.filename();
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* maker = module ? ::dlsym(module, "stretto_make_simgrid_network") : nullptr;
  if (!maker) throw runtime_failure(std::string("simgrid: ") + ::dlerror());
  return reinterpret_cast<MakeSimgridNetwork*>(maker);
}

}  // namespace

MakeSimgridNetwork* load_simgrid() {
  static MakeSimgridNetwork* const maker = load();
  return maker;
}

}  // namespace stretto::sim
