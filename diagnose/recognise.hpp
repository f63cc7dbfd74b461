#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnose.hpp"
#include "model/transformer.hpp"

namespace stretto::diagnose {

// One key of a scenario that a trace determines.
struct FoundKey {
  std::string section, key, value;  // `value` in TOML
  std::string why;                  // "products of 1024 x 2560 x 2048"
};

// The scenario of a run, as far as its traces say it.
struct Found {
  std::string model;  // keys of [model] of the known model, one a line; "": there is none
  std::vector<FoundKey> keys;
  std::vector<std::string> unknown;  // what a trace cannot say, or this one does not: one sentence each

  // The scenario in TOML, with the reasons as comments, and then what is not known.
  std::string text() const;
};

// Keys of [model] that are known beforehand, one "key = value" in TOML a line: those of a model's name.
struct KnownModel {
  std::string name, keys;
  std::optional<Transformer> shape = {};
};

// Returns what the traces say: sizes from products of matrices and attention, tensor, pipeline, context, data and
// expert parallelism from groups of collectives and sizes of their messages, recomputation from repetition. `platform`:
// a name for `[platform]`, "" where none is known. Keys of `known` win, and must not contradict. Throws Error(input)
// with the file where the traces have no products with shapes, or are of another model than `known`.
Found recognise(const Traces& traces, const KnownModel& known = {}, const std::string& platform = {});

}  // namespace stretto::diagnose
