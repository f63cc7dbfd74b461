#include "exec/state/checkpoint_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.hpp"
#include "base/error.hpp"

namespace stretto::exec {
namespace {

using Json = nlohmann::json;

// Compact JSON escapes quotes inside strings, so this text occurs in a header only as the key itself.
constexpr std::string_view kChecksumKey = "\"checksum\":\"";

constexpr std::pair<Dtype, std::string_view> kDtypes[] = {{Dtype::f32, "F32"},      {Dtype::f64, "F64"},
                                                          {Dtype::bf16, "BF16"},    {Dtype::i32, "I32"},
                                                          {Dtype::e4m3, "F8_E4M3"}, {Dtype::e5m2, "F8_E5M2"}};

// Throws unless the tensor's elements take exactly the bytes between its offsets.
void check_tensor(const StoredTensor& tensor, std::size_t data_bytes, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw input_error(fmt::format("{}: tensor {}: {}", name, tensor.name, what));
  };
  std::int64_t bytes = bytes_of_spelled(tensor.dtype);
  if (bytes == 0) refuse(fmt::format("dtype {} is none of the format's", tensor.dtype));
  for (const std::int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) refuse("shape: too large");
  if (tensor.end < tensor.begin || tensor.end > data_bytes)
    refuse(fmt::format("data_offsets [{}, {}] leave the {} bytes of data", tensor.begin, tensor.end, data_bytes));
  if (tensor.end - tensor.begin != static_cast<std::size_t>(bytes))
    refuse(fmt::format("data_offsets hold {} bytes, but its shape takes {}", tensor.end - tensor.begin, bytes));
}

// Sorts the tensors by name and checks that they cover the data.
void check_tensors(std::vector<StoredTensor>& tensors, std::size_t data_bytes, const std::string& name) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != tensors.end()) throw input_error(fmt::format("{}: the header names \"{}\" twice", name, twice->name));
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  ranges.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) {
    check_tensor(tensor, data_bytes, name);
    ranges.emplace_back(tensor.begin, tensor.end);
  }
  std::sort(ranges.begin(), ranges.end());
  std::size_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered)
      throw input_error(fmt::format("{}: byte {} of the data is {} tensor", name, std::min(begin, covered),
                                    begin > covered ? "in no" : "in more than one"));
    covered = end;
  }
  if (covered != data_bytes)
    throw input_error(fmt::format("{}: the tensors take {} bytes of data, the file has {}", name, covered, data_bytes));
}

// `header` is the file's header.
std::string checksum_of(const ReadFile& file, std::string_view header, std::size_t digits_at) {
  Checksum checksum;
  checksum.add(header.substr(0, digits_at));
  checksum.add(kNoChecksum);
  checksum.add(header.substr(digits_at + kNoChecksum.size()));
  std::vector<std::byte> scratch;
  constexpr std::size_t kPiece = 1 << 20;
  for (std::size_t at = header.size(); at < file.size();) {
    const std::span<const std::byte> piece = file.view(at, std::min(kPiece, file.size() - at), scratch);
    checksum.add(piece.data(), piece.size());
    at += piece.size();
  }
  return checksum.digits();
}

}  // namespace

std::string_view spelled(Dtype dtype) {
  for (const auto& [value, name] : kDtypes)
    if (value == dtype) return name;
  return "?";
}

std::int64_t bytes_of_spelled(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::int64_t> kBytes[] = {
      {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I64", 8}, {"I32", 4},     {"I16", 2},    {"I8", 1},
      {"U8", 1},  {"BOOL", 1}, {"U16", 2}, {"U32", 4}, {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : kBytes)
    if (name == dtype) return bytes;
  return 0;
}

std::int64_t TensorEntry::bytes() const {
  std::int64_t bytes = bytes_of(dtype);
  for (const std::int64_t extent : shape) bytes *= extent;
  return bytes;
}

std::string make_header(const CheckpointMetadata& metadata, std::span<const TensorEntry> tensors) {
  Json json = Json::object();
  json["__metadata__"] = metadata;
  json["__metadata__"]["checksum"] = kNoChecksum;
  std::int64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    const std::int64_t end = offset + tensor.bytes();
    assert(!json.contains(tensor.name));
    json[tensor.name] = {{"dtype", spelled(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  // A path in the metadata need not be UTF-8.
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw runtime_failure(
        fmt::format("a safetensors file of {} tensors: its header would take {} bytes; expected at most {}",
                    tensors.size(), text.size(), kMaxHeaderBytes));
  std::string header;
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i) header.push_back(static_cast<char>(text.size() >> (8 * i)));
  return header + text;
}

namespace {

// Refuses other formats of weights by their name, which their first bytes say.
void refuse_other_formats(const ReadFile& file) {
  const struct {
    std::string_view magic;
    const char* format;
    const char* remedy;
  } formats[] = {
      {"GGUF", "a GGUF file (llama.cpp)", "take the model's safetensors"},
      {std::string_view("PK\x03\x04", 4), "a file of torch.save()", "write it with safetensors.torch.save_file()"},
      {std::string_view("\x80\x02\x8a\n", 4), "a file of torch.save() before 1.6",
       "write it with safetensors.torch.save_file()"},
      {std::string_view("\x89HDF\r\n", 6), "an HDF5 file", "take the model's safetensors"},
      {"version https://git-lfs", "a pointer of Git LFS in place of the file", "run `git lfs pull`"},
  };
  std::vector<std::byte> scratch;
  for (const auto& [magic, format, remedy] : formats) {
    if (file.size() < magic.size()) continue;
    const std::span<const std::byte> begin = file.view(0, magic.size(), scratch);
    if (std::memcmp(begin.data(), magic.data(), magic.size()) == 0)
      throw input_error(fmt::format("{}: expected a safetensors file, got {}; {}", file.name(), format, remedy));
  }
}

}  // namespace

StoredFile parse_safetensors(const ReadFile& file) {
  const std::string& name = file.name();
  if (file.size() < kHeaderLengthBytes)
    throw input_error(fmt::format("{}: truncated: {} bytes are no safetensors file", name, file.size()));
  std::vector<std::byte> scratch;
  const std::span<const std::byte> length = file.view(0, kHeaderLengthBytes, scratch);
  std::uint64_t header_bytes = 0;
  for (int i = kHeaderLengthBytes - 1; i >= 0; --i)
    header_bytes = header_bytes << 8 | std::to_integer<std::uint64_t>(length[i]);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - kHeaderLengthBytes) {
    refuse_other_formats(file);
    throw input_error(fmt::format("{}: truncated or no safetensors file: the header takes {} bytes, {} follow", name,
                                  header_bytes, file.size() - kHeaderLengthBytes));
  }
  StoredFile parsed;
  parsed.data_begin = kHeaderLengthBytes + header_bytes;
  const std::span<const std::byte> bytes = file.view(0, parsed.data_begin, scratch);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()), bytes.size());

  HeaderJson json = parse_header_json(header.substr(kHeaderLengthBytes), name);
  parsed.metadata = std::move(json.metadata);
  parsed.tensors = std::move(json.tensors);
  check_tensors(parsed.tensors, file.size() - parsed.data_begin, name);
  return parsed;
}

const std::string& StoredFile::checksum() const {
  static const std::string none;
  const auto stated = metadata.find("checksum");
  return stated == metadata.end() ? none : stated->second;
}

void require_checksum(const ReadFile& file, const StoredFile& parsed) {
  if (!parsed.metadata.contains("checksum")) return;
  std::vector<std::byte> scratch;
  const std::span<const std::byte> bytes = file.view(0, parsed.data_begin, scratch);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t position = checksum_position(header);
  if (position == std::string::npos || checksum_of(file, header, position) != parsed.checksum())
    throw input_error(file.name() + ": corrupt: the checksum does not match the contents");
}

std::size_t checksum_position(std::string_view header) {
  const std::size_t key = header.find(kChecksumKey);
  if (key == std::string_view::npos) return key;
  const std::size_t digits = key + kChecksumKey.size();
  const bool fits = digits + kNoChecksum.size() < header.size() && header[digits + kNoChecksum.size()] == '"';
  return fits ? digits : std::string_view::npos;
}

}  // namespace stretto::exec
