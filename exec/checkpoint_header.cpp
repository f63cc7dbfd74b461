#include "exec/checkpoint_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace stretto::exec {
namespace {

using Json = nlohmann::json;

// Compact JSON escapes quotes inside strings, so this text occurs in a header only as the key itself.
constexpr std::string_view kChecksumKey = "\"checksum\":\"";
constexpr std::uint64_t kFnvOffset = 0xCBF29CE484222325, kFnvPrime = 0x100000001B3;

constexpr std::pair<Dtype, std::string_view> kDtypes[] = {
    {Dtype::f32, "F32"}, {Dtype::f64, "F64"}, {Dtype::bf16, "BF16"}, {Dtype::i32, "I32"}};

std::string_view file_name_of(Dtype dtype) {
  for (const auto& [value, name] : kDtypes)
    if (value == dtype) return name;
  return "?";
}

// 0: not a type of the format whose elements are whole bytes.
std::int64_t bytes_of(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::int64_t> kBytes[] = {
      {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I64", 8}, {"I32", 4},     {"I16", 2},    {"I8", 1},
      {"U8", 1},  {"BOOL", 1}, {"U16", 2}, {"U32", 4}, {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : kBytes)
    if (name == dtype) return bytes;
  return 0;
}

std::uint64_t fnv(std::uint64_t hash, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * kFnvPrime;
  return hash;
}

std::int64_t count_of(const Json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    throw input_error(where + ": expected a non-negative integer");
  return value.get<std::int64_t>();
}

Json parse_json(std::string_view text, const std::string& name) {
  // The library keeps the last of two equal keys without a word; here the second would hide a tensor.
  std::set<std::string> keys;
  const auto reject_duplicates = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !keys.insert(parsed.get<std::string>()).second)
      throw input_error(fmt::format("{}: the header names {} twice", name, parsed.dump()));
    return true;
  };
  try {
    Json json = Json::parse(text, reject_duplicates);
    if (!json.is_object()) throw input_error(name + ": expected the header to be a JSON object");
    return json;
  } catch (const Json::exception& error) {
    throw input_error(fmt::format("{}: malformed header: {}", name, error.what()));
  }
}

CheckpointMetadata parse_metadata(const Json& json, const std::string& name) {
  if (!json.is_object()) throw input_error(name + ": __metadata__: expected an object of strings");
  CheckpointMetadata metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) throw input_error(fmt::format("{}: __metadata__: {}: expected a string", name, key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// `begin` receives the offset of the tensor's data.
StoredTensor parse_tensor(const std::string& key, const Json& json, std::span<const std::byte> data,
                          const std::string& name, std::int64_t& begin) {
  const std::string where = fmt::format("{}: tensor {}", name, key);
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets"))
    throw input_error(where + ": expected dtype, shape and data_offsets");
  const Json &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
  if (!dtype.is_string()) throw input_error(where + ": dtype: expected a string");
  StoredTensor tensor{key, dtype.get<std::string>(), {}, {}};
  std::int64_t bytes = bytes_of(tensor.dtype);
  if (bytes == 0) throw input_error(fmt::format("{}: dtype {} is none of the format's", where, tensor.dtype));
  if (!shape.is_array()) throw input_error(where + ": shape: expected an array");
  if (!offsets.is_array() || offsets.size() != 2) throw input_error(where + ": data_offsets: expected two integers");

  for (const Json& extent : shape) {
    tensor.shape.push_back(count_of(extent, where + ": shape"));
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) throw input_error(where + ": shape: too large");
  }
  begin = count_of(offsets[0], where + ": data_offsets");
  const std::int64_t end = count_of(offsets[1], where + ": data_offsets");
  if (end < begin || static_cast<std::uint64_t>(end) > data.size())
    throw input_error(
        fmt::format("{}: data_offsets [{}, {}] leave the {} bytes of data", where, begin, end, data.size()));
  if (end - begin != bytes)
    throw input_error(fmt::format("{}: data_offsets hold {} bytes, but its shape takes {}", where, end - begin, bytes));
  tensor.data = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes));
  return tensor;
}

struct ParsedHeader {
  CheckpointMetadata metadata;
  std::vector<StoredTensor> tensors;  // by name, views of the data
};
ParsedHeader parse_header(std::string_view json_text, std::span<const std::byte> data, const std::string& name) {
  const Json json = parse_json(json_text, name);
  ParsedHeader parsed;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") {
      parsed.metadata = parse_metadata(value, name);
      continue;
    }
    std::int64_t begin = 0;
    parsed.tensors.push_back(parse_tensor(key, value, data, name, begin));
    ranges.emplace_back(begin, begin + static_cast<std::int64_t>(parsed.tensors.back().data.size()));
  }
  std::sort(ranges.begin(), ranges.end());
  std::int64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered)
      throw input_error(fmt::format("{}: byte {} of the data is {} tensor", name, std::min(begin, covered),
                                    begin > covered ? "in no" : "in more than one"));
    covered = end;
  }
  if (static_cast<std::uint64_t>(covered) != data.size())
    throw input_error(
        fmt::format("{}: the tensors take {} bytes of data, the file has {}", name, covered, data.size()));
  return parsed;
}

}  // namespace

std::optional<Dtype> dtype_named(std::string_view wanted) {
  for (const auto& [value, name] : kDtypes)
    if (name == wanted) return value;
  return std::nullopt;
}

std::string make_header(const CheckpointMetadata& metadata, std::span<const NamedTensor> tensors) {
  Json json = Json::object();
  json["__metadata__"] = metadata;
  json["__metadata__"]["checksum"] = kNoChecksum;
  std::int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    const auto end = offset + static_cast<std::int64_t>(tensor.data.size());
    assert(!json.contains(tensor.name));
    json[tensor.name] = {
        {"dtype", file_name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  // A path in the metadata need not be UTF-8.
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string header;
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i) header.push_back(static_cast<char>(text.size() >> (8 * i)));
  return header + text;
}

StoredFile parse_safetensors(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < kHeaderLengthBytes)
    throw input_error(fmt::format("{}: truncated: {} bytes are no safetensors file", name, file.size()));
  std::uint64_t header_bytes = 0;
  for (int i = kHeaderLengthBytes - 1; i >= 0; --i)
    header_bytes = header_bytes << 8 | std::to_integer<std::uint64_t>(file[i]);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - kHeaderLengthBytes)
    throw input_error(fmt::format("{}: truncated or no safetensors file: the header takes {} bytes, {} follow", name,
                                  header_bytes, file.size() - kHeaderLengthBytes));
  const std::size_t data_begin = kHeaderLengthBytes + header_bytes;
  const auto data = file.subspan(data_begin);
  std::string header(reinterpret_cast<const char*>(file.data()), data_begin);

  ParsedHeader parsed = parse_header(std::string_view(header).substr(kHeaderLengthBytes), data, name);
  const auto stated = parsed.metadata.find("checksum");
  const bool has_checksum = stated != parsed.metadata.end();
  if (has_checksum) {
    const std::size_t position = checksum_position(header);
    if (position != std::string::npos) header.replace(position, kNoChecksum.size(), kNoChecksum);
    const std::uint64_t hash = fnv(fnv(kFnvOffset, header.data(), header.size()), data.data(), data.size());
    if (position == std::string::npos || fmt::format("{:016x}", hash) != stated->second)
      throw input_error(name + ": corrupt: the checksum does not match the contents");
  }
  return {std::move(parsed.metadata), std::move(parsed.tensors), has_checksum};
}

std::string checksum_of(std::string_view header_with_zeros, std::span<const NamedTensor> tensors) {
  std::uint64_t hash = fnv(kFnvOffset, header_with_zeros.data(), header_with_zeros.size());
  for (const NamedTensor& tensor : tensors) hash = fnv(hash, tensor.data.data(), tensor.data.size());
  return fmt::format("{:016x}", hash);
}

std::size_t checksum_position(std::string_view header) {
  const std::size_t key = header.find(kChecksumKey);
  if (key == std::string_view::npos) return key;
  const std::size_t digits = key + kChecksumKey.size();
  const bool fits = digits + kNoChecksum.size() < header.size() && header[digits + kNoChecksum.size()] == '"';
  return fits ? digits : std::string_view::npos;
}

}  // namespace stretto::exec
