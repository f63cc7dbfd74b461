#pragma once
#include <string>
#include <utility>
#include <vector>

#include "model/graph/layout.hpp"

namespace stretto {

// Writes forward graphs. Layers use it, and it knows the model and its data, but no ranks.
class Builder {
 public:
  Builder(LayerGraphs& graphs, const Transformer& model, const TokenData& data)
      : graphs_(graphs), model_(model), data_(data) {}

  const Transformer& model() const { return model_; }
  const TokenData& data() const { return data_; }
  std::int64_t tokens() const { return data_.micro_batch_size * model_.seq_length; }

  // Nodes that follow belong to the module; a new section begins with the first node after begin_section().
  void set_module(Module module) { module_ = module; }
  void begin_section() { ++section_; }
  // Nodes that follow are a part of a function that frameworks may run again (Node::function).
  void set_function(Recomputed function) { function_ = function; }
  // Nodes that follow are of a branch (Node::branch); 0: of none.
  void set_branch(std::uint8_t branch) { branch_ = branch; }
  // Nodes that follow are of a bundle (Node::bundle); 0: of none.
  void set_bundle(std::uint8_t bundle) { bundle_ = bundle; }
  // Nodes that follow are of a half (Node::concurrent_half); 0: of none.
  void set_concurrent_half(std::uint8_t half) { concurrent_half_ = half; }

  // Names of a value, its gradient, and its role. "" for a gradient that nothing has.
  struct Named {
    std::string name, gradient;
    TensorRole role = TensorRole::none;
  };
  // Adds a value [tokens, cols].
  Slice activation(const Named& named, std::int64_t cols, Dim dim = Dim::none);
  // Adds one with the columns of several, which ranks cut separately: q, k and v; gate and up.
  Slice activation(const Named& named, const std::vector<std::int64_t>& parts, Dim dim);
  // Returns the parts of an MLP's first product: of the gate, if there is one, and up.
  std::vector<std::int64_t> parts_of_fc1(std::int64_t width) const;
  Slice add(Value value) { return graphs_.whole(graphs_.add(std::move(value))); }
  Value& of(const Slice& slice) { return graphs_.of(slice); }
  // Returns the array from outside of the layer; one value for each.
  Slice given(Given which, std::int64_t cols = 1);
  Slice stream(Given which) { return given(which, model_.hidden_size); }
  // Return a parameter of each layer, or with `is_layered` false of the whole model. A vector has one row, and weight
  // decay does not apply to it. The list of the model's parameters follows (model/counts/parameters.cpp).
  Slice parameter(const std::string& name, Extent rows, Extent cols, bool is_layered = true);
  Slice vector(const std::string& name, Extent cols, bool is_layered = true);

  // Appends a node of the forward pass.
  Node& add(const std::string& base, const std::string& what, Work work, std::vector<Operand> operands);

  // y = norm(x), of each of `heads` heads; keeps statistics. Weights are `name`.weight and `name`.bias.
  void norm(const std::string& name, const Slice& x, const Slice& y, std::int64_t heads = 1, bool is_layered = true);
  // The value between a norm of the whole row and the products that read it.
  Slice hidden(const std::string& name, TensorRole role);
  // y = x · weightᵀ (+ bias). The weight is cut as x and y are.
  Node& linear(const std::string& name, const Slice& x, const Slice& y, bool has_bias);
  Node& linear(const std::string& name, const Slice& weight, const Slice& x, const Slice& y, bool has_bias);
  // y = activation(x) of an MLP, whose width is that of y. The name "" is that of the function.
  void activation(const Slice& x, const Slice& y, const std::string& name = {});
  // Returns x for a function whose gradient of x, named `gradient`, is an array of its own that is added to that of x.
  Slice fork(const std::string& name, const Slice& x, const std::string& gradient);
  // out = x + dropout(b), where `term` has made b
  void residual(const std::string& name, const std::string& term, const Slice& x, const Slice& b, const Slice& out,
                DropoutSite site);
  Dropout hidden_dropout(DropoutSite site, bool has_residual) const;
  // The result of a section before it is added to the residual stream.
  Slice branch_result();
  // norm(x), or where inputs of sublayers have no norms x itself.
  Slice normed_input(const std::string& name, TensorRole role, const Slice& x);
  // The result of product `name`, the last one of a section: branch_result(), or where results have norms a value of
  // its own, and normed_result() of it is added to the stream. `suffix` is for kinds of layers with another value.
  Slice sublayer_result(const std::string& name);
  Slice normed_result(const std::string& name, const Slice& b, const std::string& suffix = {});
  // Columns of x, one part after the other.
  static std::vector<Slice> split(const Slice& x, const std::vector<std::int64_t>& widths);

 private:
  LayerGraphs& graphs_;
  const Transformer& model_;
  const TokenData& data_;
  Module module_ = Module::none;
  Recomputed function_ = Recomputed::none;
  std::uint8_t section_ = 0, branch_ = 0, bundle_ = 0, concurrent_half_ = 0;
};

}  // namespace stretto
