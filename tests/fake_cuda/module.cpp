// All of it is in the libraries that CMake links.
