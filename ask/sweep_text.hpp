#pragma once
#include <string>

#include "ask/sweep.hpp"
#include "report/html.hpp"
#include "report/ink.hpp"

namespace stretto::ask {

struct SweepShown {
  bool is_kept = false;   // --resume can go on with what was interrupted
  bool verbose = false;   // also: why points are refused, where the time of the best goes, all of the front
  bool megatron = false;  // also: the flags of Megatron-LM
  Ink ink = {};
};
// Return what the command prints, the finding first, and the page of --html.
std::string text_of(const SweepAnswer& answer, const SweptSpace& space, const SweepShown& shown);
HtmlReport page_of(const SweepAnswer& answer, SweptSpace& space);

}  // namespace stretto::ask
