#pragma once
#include <string>

#include "ask/sweep.hpp"
#include "report/html.hpp"

namespace stretto::ask {

// Return what the command prints, and the page of --html. `is_kept`: --resume can go on with what was interrupted.
std::string text_of(const SweepAnswer& answer, const SweptSpace& space, bool is_kept);
HtmlReport page_of(const SweepAnswer& answer, SweptSpace& space);

}  // namespace stretto::ask
