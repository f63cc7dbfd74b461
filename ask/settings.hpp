#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ask/request.hpp"
#include "interchange/imported.hpp"

namespace stretto::ask {

// Settings of another program: a file, or the flags themselves.
struct ImportRequest {
  std::string file, flags;               // one of them
  std::string format;                    // "megatron", "yaml", "torchtitan", "bridge"; "": by the file's suffix
  std::vector<std::string> set = {};     // "section.key=value" of the scenario
  std::vector<std::string> environment;  // "NAME=VALUE" that a script finds set
  std::int64_t gpus = 0;                 // 0: as the settings say
};

// Returns the scenario with its notes. Throws Error(input) for bad options and as the readers of the format do.
Translation imported(const ImportRequest& of);
// Returns the scenario in another program's terms, "megatron", "bridge" or "torchtitan". Throws Error(input) for
// another format, as Asked does, and as the writers do.
Translation exported(const Request& of, const std::string& format);

}  // namespace stretto::ask
