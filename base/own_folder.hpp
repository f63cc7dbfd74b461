#pragma once
#include <filesystem>

namespace stretto {

// Returns the folder of the file that holds this code: the program, or libstretto.so where another program has loaded
// the library. Empty where the path cannot be read.
std::filesystem::path own_folder();

}  // namespace stretto
