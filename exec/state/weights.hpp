#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/state/model_state.hpp"
#include "exec/state/tensor_file.hpp"
#include "exec/state/weight_names.hpp"

namespace stretto::exec {

// The parameters of a model in safetensors files: those of Stretto's checkpoints (whose optimizer state is ignored) or
// of Hugging Face's GPT-2 and Llama (exec/state/weight_names.hpp), distinguished by the names of the tensors, in F64,
// F32, BF16 or F16. A parameter is in memory only while it is read. Move-only. Safe to read from several threads.
class Weights {
 public:
  // `path`: a file; the index of a model in several files of its folder (Hugging Face's model.safetensors.index.json);
  // or a folder with one of the two, model.safetensors. Throws Error(input), one line with the file: it cannot be read
  // or is malformed, tensors follow none of the known namings, a parameter of the model is missing or has another
  // shape, which is given, or there is a head that differs from the embedding that is the model's head. Throws
  // Error(runtime) when the system cannot read it.
  static Weights open(const std::string& path, const Transformer& model);
  // Reads one open file. Throws as open().
  static Weights of(TensorFile file, const Transformer& model);

  // Returns a parameter by its full name, without padding of the vocabulary, in f64. Throws Error(input) naming an
  // element that is not finite, Error(runtime) when its file has become shorter since it was opened, or cannot be read.
  FullTensor read(const std::string& full_name) const;

  const char* naming() const { return naming_->title; }
  // Returns the tensors that no parameter of the model uses, by name.
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  struct Piece {
    const TensorFile* file;
    const StoredTensor* tensor;
  };
  struct Source {
    std::int64_t rows = 0, cols = 0;
    bool is_transposed = false;
    std::vector<Piece> pieces;
  };
  Weights() = default;
  void find_sources(const std::string& path, const Transformer& model);
  void require_tied(const std::string& path, const Transformer& model);
  void require_finite(const FullTensor& full, const Source& source) const;
  std::string choose_naming(const std::string& path);  // returns the prefix of names
  Piece find_piece(const std::string& path, const std::string& name, const std::vector<std::int64_t>& shape) const;

  std::vector<std::unique_ptr<TensorFile>> files_;
  std::map<std::string, Piece> tensors_;  // tensors of all files
  const WeightNaming* naming_ = nullptr;
  std::map<std::string, Source> sources_;  // [full name]
  std::vector<std::string> unused_;
};

// Returns the files that Weights::open(path) reads, as far as they are known, so that no output overwrites them. Throws
// nothing.
std::vector<std::string> files_of_weights(const std::string& path);

// Returns the first of them, for a message: "a, b, c, …".
std::string some_of(const std::vector<std::string>& names);

}  // namespace stretto::exec
