#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "report/step_log.hpp"

namespace stretto {

// Appends scalars to an event file of TensorBoard (tensorflow/core/util/event.proto and summary.proto, records as in
// tensorflow/core/lib/io/record_writer.h), flushed after every step. Throws Error(runtime) with the path and the
// system's reason.
class TensorBoardLog {
 public:
  explicit TensorBoardLog(std::string path);
  ~TensorBoardLog();
  TensorBoardLog(const TensorBoardLog&) = delete;
  TensorBoardLog& operator=(const TensorBoardLog&) = delete;
  void add(std::int64_t step, const StepValues& values);

 private:
  std::string path_;
  int fd_ = -1;
};

// Returns the name of a new event file, by which TensorBoard finds it in a folder and orders it among others.
std::string event_file_name();

// Returns the CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected) of the bytes.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace stretto
