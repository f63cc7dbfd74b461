#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "model/schedule/operands.hpp"

// Words for lists of operands.
namespace stretto::operand_specs {

// Operands of works of low precision and of grouped products of codes (model/schedule/low_precision_operands.cpp).
OperandList operands_of_codes(const GroupedGemm& work);
OperandList operands_of_codes(const Amax& work);
OperandList operands_of_codes(const UpdateScale& work);
OperandList operands_of_codes(const Quantise& work);
OperandList operands_of_codes(const TransposeCodes& work);

using Shape = OperandShape;
using Type = OperandType;

inline OperandSpec vector_of(const char* name, const char* modes, std::int64_t elements, Type type = Type::floating) {
  return {name, modes, 1, elements, Shape::vector, type};
}
inline OperandSpec scalar_of(const char* name, const char* modes) { return vector_of(name, modes, 1, Type::f64); }
inline OperandSpec table_of(const char* name, const char* modes, std::int64_t rows, std::int64_t cols) {
  return {name, modes, rows, cols, Shape::table, Type::floating};
}

// Returns the operand with codes of a matrix [rows, cols].
inline OperandSpec codes_of(const char* name, const char* modes, Dtype format, Scaling scaling, ScaledAlong along,
                            std::int64_t rows, std::int64_t cols) {
  const CodeShape shape = code_shape(format, scaling, along, rows, cols);
  return {name, modes, shape.rows, shape.cols, Shape::matrix, Type::codes};
}

inline bool has_wgrad(Pass pass) { return pass == Pass::wgrad || pass == Pass::backward; }
inline bool has_dgrad(Pass pass) { return pass == Pass::dgrad || pass == Pass::backward; }

// Returns why a matrix has no such groups of rows, or "".
inline std::string problem_of(const GroupedRows& g) {
  if (g.groups < 0) return "groups must be positive";
  if (g.groups == 0) return g.capacity == 0 && !g.equal ? "" : "capacity and equal are of groups";
  if (g.equal && (g.capacity != 0 || g.rows % g.groups != 0)) return "groups must have equally many rows";
  return g.capacity == 0 || g.capacity >= g.rows ? "" : "capacity must be at least rows";
}

inline OperandList bad(std::string error) { return {{}, std::move(error)}; }

}  // namespace stretto::operand_specs
