#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace stretto {

// Documents and programs of other frameworks, known by their keys and names before they are read. The rows are data:
// scenarios/formats.toml.

struct CommandLine;

// The sections by which a document is one that the readers of this folder understand.
enum class DocumentKind { nemo, bridge, megatron, overlap, other };
// Returns the kind of a document: `nemo` has `trainer` and `model` with keys of Megatron's; `bridge` has no section
// that a ConfigContainer lacks, and keys of Megatron's; `megatron` has a model's sizes by Megatron's names;
// `overlap` has fields of CommOverlapConfig alone.
DocumentKind kind_of_document(const nlohmann::json& root);

// Throws Error(input) unless the document is one of these kinds. The message names the format by its keys where a row
// of the table fits, and says what would help.
void require_document(const nlohmann::json& root, const std::string& name);
// Throws Error(input) where a row of the table fits the document, and otherwise says what `expected` says.
[[noreturn]] void refuse_document(const nlohmann::json& root, const std::string& name, const std::string& expected);
// Returns the reader and the name of the row that fits, where the row has a reader (keyed_document.hpp); else "".
std::pair<std::string, std::string> reader_of_document(const nlohmann::json& root);
// Throws Error(input) where a row for documents with sections of other formats too ("first") fits.
void refuse_similar(const nlohmann::json& root, const std::string& name);
// Throws Error(input) where a text that could not be parsed is a template, or has a format's keys at the beginnings of
// its lines.
void refuse_unparsed(std::string_view text, const std::string& name);

// Throws Error(input) where a row of the table fits the program: a tool, a server, a trainer of another kind.
void refuse_program(const CommandLine& line, const std::string& name);

}  // namespace stretto
