#include "report/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "report/protobuf.hpp"

namespace stretto {
namespace {

constexpr std::array<std::uint32_t, 256> table_of_crc() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrc = table_of_crc();

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return text;
}

std::string masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return little_endian(((crc >> 15) | (crc << 17)) + 0xa282ead8u, 4);
}

std::string record_of(const ProtoMessage& message) {
  const std::string length = little_endian(message.bytes().size(), 8);
  return length + masked_crc(length) + message.bytes() + masked_crc(message.bytes());
}

// Fields of Event, Summary and Summary.Value.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrc[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string event_file_name() { return fmt::format("events.out.tfevents.{:010.0f}.stretto.{}", wall_s(), ::getpid()); }

TensorBoardLog::TensorBoardLog(std::string path) : path_(std::move(path)), fd_(open_to_append(path_)) {
  ProtoMessage first;
  first.add_fixed(kWallTime, wall_s());
  first.add(kFileVersion, std::string_view("brain.Event:2"));
  append(fd_, path_, record_of(first));
}

TensorBoardLog::~TensorBoardLog() { ::close(fd_); }

void TensorBoardLog::add(std::int64_t step, const StepValues& values) {
  ProtoMessage summary;
  for (const auto& [name, number] : values) {
    ProtoMessage value;
    value.add(kTag, std::string_view(name));
    value.add_fixed(kSimpleValue, static_cast<float>(number));
    summary.add(kValue, value);
  }
  ProtoMessage event;
  event.add_fixed(kWallTime, wall_s());
  event.add(kStep, static_cast<std::uint64_t>(step));
  event.add(kSummary, summary);
  append(fd_, path_, record_of(event));
}

}  // namespace stretto
