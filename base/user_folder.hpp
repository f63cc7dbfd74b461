#pragma once
#include <string>

namespace stretto {

// Returns the folder of this program for the user's files of one kind: $`xdg`/stretto, by default
// $HOME/`below_home`/stretto (freedesktop.org's XDG Base Directory Specification); "" where neither variable is set to
// an absolute path. The specification says that a relative path is to be ignored; it would be another folder wherever
// the program is started.
std::string user_folder(const char* xdg, const char* below_home);

}  // namespace stretto
