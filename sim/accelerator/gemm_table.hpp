#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/accelerator/product_type.hpp"

namespace stretto::sim {

// Time of C[m,n] = A[m,k] · B[k,n] for one kind of product, alone on a GPU.
struct GemmTime {
  double m = 0, n = 0, k = 0;
  double us = 0;
  ProductType type = ProductType::bf16;
};

// Measured times of GEMMs of one kind on a grid of shapes, with interpolation.
//
// The logarithm of time / (m·n·k) is interpolated linearly in log m, log n and log k. Rows and columns of C are
// interchangeable, so a shape may be looked up as (n, m, k). Below the smallest m or n of the grid a kernel still fills
// whole tiles of 128; below the smallest k, and above the largest of any dimension, time is proportional.
class GemmGrid {
 public:
  // Several times of one shape count as their geometric mean. A grid point without a time is filled from its neighbours
  // in k. Throws Error(input) with `name` when an m and n of the grid have no time at any k. Needs at least one time.
  GemmGrid(const std::vector<GemmTime>& times, const std::string& name);

  std::vector<GemmTime> times() const;  // measured times, sorted by m, n and k; their type is not set
  // Returns a time. With `sms` > 0 the interpolated quantity is time · utilisation, where the utilisation is that of
  // whole waves of tiles on this many SMs (A100: it halves the error of shapes left out; later kernels use several
  // tiles, and it does not help).
  double time_us(double m, double n, double k, int sms) const;
  // Returns how often the largest size of the grid, or the smallest, goes into the side that is farthest outside; 1
  // within the grid.
  double beyond(double m, double n, double k) const;

  const std::vector<double>& m() const { return m_; }
  const std::vector<double>& n() const { return n_; }
  const std::vector<double>& k() const { return k_; }

 private:
  // Returns rows and columns of C in the orientation that time_us() looks up.
  std::pair<double, double> sides(double m, double n) const;
  std::size_t index(std::size_t i, std::size_t j, std::size_t l) const { return (i * n_.size() + j) * k_.size() + l; }

  std::vector<double> m_, n_, k_;  // axes of the grid, ascending
  std::vector<double> us_;         // [m][n][k]
  std::vector<bool> is_filled_;    // [m][n][k]: filled, not measured
};

// One grid for each kind of product. A function with a type does what the grid's does; the table must have times of the
// type.
class GemmTable {
 public:
  GemmTable() = default;  // an empty table
  // Throws as the grids do, and when there are no times.
  GemmTable(const std::vector<GemmTime>& times, const std::string& name);
  // Parses a CSV file with the columns m, n, k and time_us, and optionally dtype, a name of ProductType (bf16 without
  // it); other columns are ignored. Throws as the constructor does, with the line.
  static GemmTable parse(const std::string& text, const std::string& name);

  bool empty() const { return grids_.empty(); }
  bool has(ProductType type) const { return grids_.contains(type); }
  std::vector<GemmTime> times() const;  // measured times, sorted by type, m, n and k
  std::string text() const;             // the text that parse() reads; times have five digits
  double time_us(double m, double n, double k, int sms, ProductType type = ProductType::bf16) const {
    return grids_.at(type).time_us(m, n, k, sms);
  }
  double beyond(double m, double n, double k, ProductType type = ProductType::bf16) const {
    return grids_.at(type).beyond(m, n, k);
  }
  const GemmGrid& grid(ProductType type = ProductType::bf16) const { return grids_.at(type); }

 private:
  std::map<ProductType, GemmGrid> grids_;
};

// Returns the share of the work of whole waves that an m × n result uses, with the best of the tiles that libraries
// choose from.
double wave_utilisation(double m, double n, int sms);

}  // namespace stretto::sim
