#pragma once
#include <nlohmann/json_fwd.hpp>

namespace stretto::page {

// Returns `lists` of page/answer.hpp, all of it from the tables that the program has.
nlohmann::json lists();

}  // namespace stretto::page
