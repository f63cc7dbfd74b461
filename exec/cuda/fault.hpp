#pragma once
#include <cstdint>
#include <string>

#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Data that a kernel cannot work with. A kernel throws nothing: it leaves the rows concerned out, so that it touches
// nothing outside its operands, and writes what it found to memory of the host, where the executor looks whenever it
// waits. Of several faults one is kept, whole: 16 bytes are one store.
struct alignas(16) Fault {
  enum class Kind : std::int32_t {
    none,
    index,           // of an expert
    offset,          // of experts' rows
    position,        // of a copy's row
    rows_of_expert,  // more than padding leaves room for; `at` is the expert
    rows_of_rank,    // more than a rank's experts have room for
  };
  Kind kind = Kind::none;
  std::int32_t op = 0;  // operation of the rank, as an index into BoundProgram::ops
  std::int32_t at = 0;
  std::int32_t value = 0;  // the index, offset or position, or the number of rows
};

// Returns the message, which is the host's for equal data. `work` is that of the operation.
std::string text_of(const Fault& fault, const Work& work);

}  // namespace stretto::cuda
