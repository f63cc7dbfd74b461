#include "exec/cuda/module/library.hpp"

#include <dlfcn.h>

#include "base/error.hpp"

namespace stretto::cuda {

Library::Library(const std::string& name, const std::string& what) : name_(name), what_(what) {
  handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) throw runtime_failure(what_ + " is needed and cannot be loaded: " + ::dlerror());
}

void* Library::address_or_null(const char* name) const { return ::dlsym(handle_, name); }

void* Library::address_of(const char* name) const {
  void* address = address_or_null(name);
  if (address == nullptr) throw runtime_failure(what_ + ": " + name_ + " is too old, it has no " + name);
  return address;
}

}  // namespace stretto::cuda
