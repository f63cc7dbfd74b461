#pragma once
#include <string>

namespace stretto {

// Loads the shared object `name`, which lies beside the program, in the folder above, or in lib/stretto of that, once
// per process, and returns the address of its symbol. Throws Error(runtime) with the loader's reason when there is no
// such module or symbol.
void* load_module(const std::string& name, const std::string& symbol);
// Whether that has been done for any symbol of it.
bool is_module_loaded(const std::string& name);

}  // namespace stretto
