#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "interchange/shell_expand.hpp"

namespace stretto::shell {

// Programs that launch scripts pass text through, as far as the text that they print is known. They read and write
// nothing but these texts.

// Returns what `tr`, `xargs` without a command, or `cat` prints of a text; nothing for other programs and options.
std::optional<std::string> filtered_text(const std::vector<std::string>& words, const std::string& text,
                                         Budget& budget);

// Returns the text with $NAME and ${NAME} replaced by the values of variables, as `envsubst` does; the value of a
// variable that nothing sets is unknown.
std::string substituted_variables(const std::string& text, const State& state);

// Returns what `yq FILTER FILE` prints of YAML: one value (".ARGS.\"--x\""), or the entries of a mapping, each in a
// line with the text that the filter puts between key and value (".ARGS | to_entries | … .key + \" \" + .value");
// entries that are "false" are left out and "true" is an empty value where the filter names these words. Nothing for
// other filters, and for a file that is not there or is no YAML.
std::optional<std::string> yq_output(const std::vector<std::string>& words,
                                     const std::function<std::optional<std::string>(const std::string&)>& read,
                                     Budget& budget);

}  // namespace stretto::shell
