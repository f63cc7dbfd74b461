#pragma once
#include <optional>
#include <string>

#include "interchange/imported.hpp"

namespace stretto {

struct Yaml;

// Reads a document of another trainer by its table of keys (scenarios/document_keys.toml), where a row of
// scenarios/formats.toml that fits the document names one; nothing for other documents. Throws Error(input) with the
// file, the line and the key where a value is none of those that the table knows, and as scenario_of().
std::optional<Translation> from_keyed_document(const Yaml& yaml, const std::string& name, const ImportOptions& options);

}  // namespace stretto
