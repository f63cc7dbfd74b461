#pragma once
#include <filesystem>

namespace stretto {

// The folder of the file that this code is in: the program's, or that of libstretto.so where another program has loaded
// it. Empty where that cannot be read.
std::filesystem::path own_folder();

}  // namespace stretto
