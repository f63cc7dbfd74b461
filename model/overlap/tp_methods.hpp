#pragma once
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "model/scenario.hpp"

namespace stretto {

// How the communication of each GEMM of a layer overlaps with it, after all switches: TransformerEngine's user-buffer
// methods, by Megatron-Bridge's names "qkv_fprop", "proj_dgrad", … , and Flash-Overlap's (arXiv 2604.24013).
struct TpMethods {
  TpGemm qkv_fprop, fc1_fprop;   // all-gather of the input before the GEMM
  TpGemm proj_dgrad, fc2_dgrad;  // all-gather of the output's gradient before the GEMM
  TpGemm proj_fprop, fc2_fprop;  // reduce-scatter of the output after the GEMM
  // bulk: all-gather of the input (for wgrad), concurrent with the GEMM; else the GEMM's reduce-scatter
  TpGemm qkv_dgrad, fc1_dgrad;
  TpGemm qkv_wgrad, fc1_wgrad;  // bulk: reduce-scatter of the data gradient, concurrent with the GEMM
};
// Resolves the methods. Defaults are TransformerEngine's: all-gathers by ring exchange, reduce-scatters in four pieces,
// bulk for the rest. `rows` are the rows of the residual stream that a rank has, and a piece of a weight is a multiple
// of `block`: codes have their scales after whole blocks. `notes` gets a line for each method that cannot act in this
// model, which is then none.
TpMethods tp_methods(const Overlap& overlap, const Transformer& model, std::int64_t tp, std::int64_t rows,
                     std::int64_t block, std::vector<std::string>& notes);
// Returns whether the communication is cut into pieces that overlap with its own GEMM.
bool is_split(const TpGemm& gemm);

// The keys tp_comm_* of [overlap]: OverlapMode::read and check.
void read_tp_keys(TomlTable& table, Overlap& overlap);
void check_tp_keys(TomlTable& table, const Overlap& overlap);

}  // namespace stretto
