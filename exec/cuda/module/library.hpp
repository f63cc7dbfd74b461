#pragma once
#include <string>

namespace stretto::cuda {

// A shared library that is loaded when something needs it, and stays: whoever does without it need not have it.
class Library {
 public:
  // `name`: as the loader knows it, with its major version ("libnccl.so.2"). `what`: as messages call it ("NCCL").
  // Throws Error(runtime) with the loader's reason.
  Library(const std::string& name, const std::string& what);

  // Sets `function` to the function of that name. Throws Error(runtime): this version of the library has none.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(name));
  }
  // Null where this version of the library has none: whoever needs it says so.
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
