#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stretto::page {

// Returns `toml`, the scenario from a dropped launch script, recipe or configuration, and `notes`, as `stretto import`
// says them. `name` says by its suffix whose settings it has; `text` is its content. Throws Error(input) as the readers
// of interchange do.
nlohmann::json imported_json(const std::string& name, const std::string& text);

}  // namespace stretto::page
