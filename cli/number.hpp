#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace stretto::cli {

// Checks that an option's number lies in [least, most]. CLI::Range accepts nan, which is neither below nor above any
// number; so every option that takes a number with a point has this validator.
inline CLI::Validator number_from(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& given) {
        double value = 0;
        const bool is_number = CLI::detail::lexical_cast(given, value);
        // usage_message() knows this form.
        return is_number && value >= least && value <= most
                   ? ""
                   : fmt::format("Value {} not in range {:g} to {:g}", given, least, most);
      },
      "");
}

}  // namespace stretto::cli
