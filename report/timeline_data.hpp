#pragma once
#include <nlohmann/json_fwd.hpp>

#include "report/html.hpp"

namespace stretto {

// Returns the data of a page's timelines for report/html/timeline.js, which documents the fields.
nlohmann::json timeline_data(const HtmlReport& report);

}  // namespace stretto
