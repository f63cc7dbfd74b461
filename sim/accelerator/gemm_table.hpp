#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/schedule/dtype.hpp"

namespace stretto::sim {

// Time of C[m,n] = A[m,k] · B[k,n] of operands of a type, alone on a GPU.
struct GemmTime {
  double m = 0, n = 0, k = 0;
  double us = 0;
  Dtype type = Dtype::bf16;
};

// Measured times of GEMMs of one type on a grid of shapes, and what lies between.
//
// The logarithm of time / (m·n·k) is interpolated linearly in log m, log n and log k. Rows and columns of C are
// interchangeable, so a shape may be looked up as (n, m, k). Below the smallest m or n of the grid a kernel still fills
// whole tiles of 128; below the smallest k, and above the largest of any, time is proportional.
class GemmGrid {
 public:
  // The geometric mean of several times of one shape counts. A grid point that they lack is filled from its neighbours
  // in k. Throws Error(input) with `name`: none at any k for an m and n of the grid. At least one time.
  GemmGrid(const std::vector<GemmTime>& times, const std::string& name);

  std::vector<GemmTime> times() const;  // that were measured, by m, n and k; their type is not said
  // `sms` > 0: what is interpolated is time · utilisation, where the utilisation is that of whole waves of tiles on so
  // many SMs (A100: it halves the error of shapes left out; later kernels are not of one tile, and it does not help).
  double time_us(double m, double n, double k, int sms) const;
  // How often the largest of the grid, or the smallest, goes into the side that is farthest outside; 1 within.
  double beyond(double m, double n, double k) const;

  const std::vector<double>& m() const { return m_; }
  const std::vector<double>& n() const { return n_; }
  const std::vector<double>& k() const { return k_; }

 private:
  // Rows and columns of C as time_us() looks them up.
  std::pair<double, double> sides(double m, double n) const;
  std::size_t index(std::size_t i, std::size_t j, std::size_t l) const { return (i * n_.size() + j) * k_.size() + l; }

  std::vector<double> m_, n_, k_;  // of the grid, rising
  std::vector<double> us_;         // [m][n][k]
  std::vector<bool> is_filled_;    // [m][n][k]: was not measured
};

// A grid for each type of operands. Functions of one type are as the grid's; there must be times of it.
class GemmTable {
 public:
  GemmTable() = default;  // empty
  // Throws as the grids do; without any times too.
  GemmTable(const std::vector<GemmTime>& times, const std::string& name);
  // Text of a CSV file with the columns m, n, k and time_us, and maybe dtype (bf16 without it); others are ignored.
  // Throws likewise, and with the line.
  static GemmTable parse(const std::string& text, const std::string& name);

  bool empty() const { return grids_.empty(); }
  bool has(Dtype type) const { return grids_.contains(type); }
  std::vector<GemmTime> times() const;  // that were measured, by type, m, n and k
  std::string text() const;             // as parse() takes it; times have five digits
  double time_us(double m, double n, double k, int sms, Dtype type = Dtype::bf16) const {
    return grids_.at(type).time_us(m, n, k, sms);
  }
  double beyond(double m, double n, double k, Dtype type = Dtype::bf16) const {
    return grids_.at(type).beyond(m, n, k);
  }
  const GemmGrid& grid(Dtype type = Dtype::bf16) const { return grids_.at(type); }

 private:
  std::map<Dtype, GemmGrid> grids_;
};

// The share of the work of whole waves that an m × n result uses, of the best of the tiles that libraries choose from.
double wave_utilisation(double m, double n, int sms);

}  // namespace stretto::sim
