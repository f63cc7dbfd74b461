#pragma once
#include <string>

namespace stretto::cuda {

// A shared library that is loaded at its first use, and stays: a program that does not use it need not have it.
class Library {
 public:
  // `name`: the loader's name, with its major version ("libnccl.so.2"). `what`: its name in messages ("NCCL"). Throws
  // Error(runtime) with the loader's reason.
  Library(const std::string& name, const std::string& what);

  // Sets `function` to the function with this name. Throws Error(runtime) when this version of the library has none.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(name));
  }
  // Sets null where this version of the library has none; the caller that needs it reports that.
  template <class Function>
  void find_if_there(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_or_null(name));
  }

 private:
  void* address_or_null(const char* name) const;
  void* address_of(const char* name) const;

  std::string name_, what_;
  void* handle_ = nullptr;
};

}  // namespace stretto::cuda
