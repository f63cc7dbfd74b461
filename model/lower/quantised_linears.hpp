#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/linear_layers.hpp"
#include "model/lower/block_writer.hpp"
#include "model/lower/delayed_scaling.hpp"

namespace stretto {

// Linear layers whose products are of codes (docs/low-precision.md): their tensors, and the operations that quantise,
// gather, transpose and multiply them. Sizes are this rank's; T = tokens of a micro-batch, of which the rank has R of
// the residual stream. With sequence parallelism codes are gathered: X of column-parallel layers, dY of row-parallel
// ones. Experts are grouped products: every expert's rows and weight become codes by themselves, with scales of their
// own. References are borrowed.
class QuantisedLinears {
 public:
  QuantisedLinears(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, const DelayedScaling* delayed);

  // `is_again`: a backward pass computes its input again.
  struct Linear {
    LinearLayer size;
    bool is_again = false;
    GroupedRows rows = {};  // of experts
    std::string name() const { return stretto::name_of(size.layer); }
  };
  // Adds all layers, once.
  void add(const std::vector<Linear>& linears);
  bool has(const std::string& name) const;

  // Makes the codes of all weights of a layer of this kind, in a pass of it with BlockShape::codes_in_passes.
  void quantise_weights(const LayerSpec& kind, Phase phase);
  // The two halves of row_forward(): the codes of an input, which the weight gradient reads too, and the product.
  void quantise_input(const std::string& name, const View& x, const std::optional<View>& offsets = std::nullopt);
  void multiply_input(const std::string& name, const View& y);
  // As BlockWriter's functions of these names. `x` has the rank's rows.
  void column_forward(const std::string& name, const View& x, const View& y);
  void row_forward(const std::string& name, const View& x, const View& y);
  View column_backward(const std::string& name, const View& dy, const View& dx, const View& dx_part);
  void row_backward(const std::string& name, const View& dy_part, const View& dx);
  // A layer that tp does not cut, on this rank's rows; row_forward() has its forward pass. dx is written or added to.
  void whole_backward(const std::string& name, const View& dy, const Access& dx);
  // Experts' products, where GroupedRows says how many rows each has, or `offsets`. grouped_forward() makes the codes
  // of x first, as quantise_rows() does alone; grouped_dgrad() leaves the weight gradient to grouped_wgrad(). x and dy
  // may have come as codes (Quantise::of_codes).
  void quantise_rows(const std::string& name, const View& x, const std::optional<View>& offsets);
  void grouped_forward(const std::string& name, const View& x, const std::optional<View>& offsets, const View& y);
  void grouped_dgrad(const std::string& name, const View& dy, const std::optional<View>& offsets, const View& dx);
  void grouped_wgrad(const std::string& name, const std::optional<View>& offsets);

 private:
  // The copies of one factor: `codes` scaled along rows, and perhaps a second one along columns.
  struct Copies {
    View codes;
    std::optional<View> columns;
    ColumnCopy second = ColumnCopy::none;
    View inverse, column_inverse;
    // The copy for products over the rows of the factor.
    const View& over_rows() const { return columns ? *columns : codes; }
  };
  struct Of {
    Linear linear;
    std::int64_t index = 0;    // among the layers
    std::int64_t first = 0;    // matrices of the layers before it
    std::vector<bool> layers;  // [layer of the model] that have its codes
    Copies x, w, dy;
  };
  static const char* name_of(Factor factor) { return factor == Factor::x ? "x" : factor == Factor::w ? "w" : "dy"; }

  const Of& of(const std::string& name) const;
  static const Copies& copies(const Of& of, Factor factor) {
    return factor == Factor::x ? of.x : factor == Factor::w ? of.w : of.dy;
  }
  Dtype format(Factor factor) const { return factor == Factor::dy ? low_.backward : low_.forward; }
  Scaling scaling(Factor factor) const { return factor == Factor::w ? low_.weights : low_.activations; }
  bool gathers(const Linear& linear, Factor factor) const;
  GroupedRows groups_of(const Linear& linear, Factor factor) const;
  std::int64_t rows_of(const Linear& linear, Factor factor) const;
  std::int64_t cols_of(const Linear& linear, Factor factor) const;
  CodeShape shape_of(const Linear& linear, Factor factor, ColumnCopy copy) const;
  ColumnCopy second_of(const Linear& linear, Factor factor) const;
  bool has_hadamard(const Linear& linear, Factor factor) const;

  Copies add_copies(const Of& of, Factor factor);
  View add_codes(const Of& of, const std::string& name, Factor factor, CodeShape shape, bool is_kept, bool is_again);
  TensorId of_weights(const std::string& name, Dtype dtype, std::int64_t rows, std::int64_t cols,
                      const std::vector<bool>& layers);
  View shared(const std::string& name, Dtype dtype, std::int64_t rows, std::int64_t cols);
  View inverse_of(const Of& of, Factor factor, std::int64_t which);
  View number_of(const char* what, const Of& of, Factor factor, std::int64_t count);
  View state_of(TensorId forward, TensorId backward, const Of& of, Factor factor) const;

  void quantise(const Of& of, Factor factor, const View& matrix, std::optional<Phase> pass = std::nullopt,
                const std::optional<View>& offsets = std::nullopt);
  std::string width_of(const Linear& linear, Factor factor) const;
  View gathered(const Of& of, const char* suffix, Phase phase, const View& part, Factor factor, ScaledAlong along);
  // For a weight gradient: gathers a factor, of which the rank has its own rows; transposes what was gathered.
  View gathered_for_weights(const Of& of, Factor factor);
  View transposed_for_weights(const Of& of, Factor factor, const View& all);
  void fprop(const Of& of, const View& x, const View& y);
  void dgrad(const Of& of, const View& dy, const Access& dx);
  void wgrad(const Of& of, const View& dy, const View& x);
  void bgrad(const Of& of, const View& dy);
  std::vector<Access> factors(const View& a, const View& b, const View& inverse_a, const View& inverse_b,
                              const std::optional<View>& bias, Access result) const;
  GroupedGemm grouped(const Linear& linear, Pass pass, Scaling of_b) const;

  Schedule& schedule_;
  BlockWriter& w_;
  const BlockShape& shape_;
  const LowPrecisionRules& low_;
  const DelayedScaling* delayed_;
  const bool trains_, is_nv_;
  std::vector<Of> linears_;
  std::int64_t count_ = 0;                  // of layers without groups, whose numbers of one kind are one tensor
  std::map<std::string, TensorId> shared_;  // tensors of all layers or of all linear layers, by name
};

}  // namespace stretto
