#pragma once
#include <string>

namespace stretto {

// Loads the shared object `name` once per process and returns the address of its symbol. The module lies next to the
// program, in the folder above, or in lib/stretto of the folder above. Throws Error(runtime) with the loader's reason
// when there is no such module or symbol.
void* load_module(const std::string& name, const std::string& symbol);
// Returns whether load_module has loaded this module, for any symbol.
bool is_module_loaded(const std::string& name);

}  // namespace stretto
