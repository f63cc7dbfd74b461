#include "exec/state/tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace stretto::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTensorKey = "tensor ";
constexpr std::size_t kMostShards = std::size_t{1} << 24;
constexpr std::size_t kDigits = kNoChecksum.size();

// Removes a number from the beginning of `text` and returns it; nullopt: there is none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char mark) {
  if (text.empty() || text.front() != mark) return false;
  text.remove_prefix(1);
  return true;
}

// Reads "F32 36 12: 0 2" up to the colon and removes that from `text`; returns false where the text has another form.
bool take_tensor(std::string_view& text, StoredTensor& tensor) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return false;
  tensor.dtype = text.substr(0, blank);
  text.remove_prefix(blank);
  std::int64_t elements = bytes_of_spelled(tensor.dtype);
  if (elements == 0) return false;
  for (int extent = 0; extent < 2; ++extent) {
    if (!take(text, ' ')) return false;
    const std::optional<std::int64_t> value = take_number(text);
    if (!value || __builtin_mul_overflow(elements, *value, &elements)) return false;
    tensor.shape.push_back(*value);
  }
  return take(text, ':');
}

// Calls fn(stretch, begin) for the stretches of a tensor with `cols` columns that make up a part, with their begins in
// the part.
template <class Fn>
void for_stretches(const TensorPart& part, std::int64_t cols, Fn fn) {
  if (part.cols() == cols) return fn(Stretch{part.row * cols, part.rows() * cols}, std::int64_t{0});
  for (std::int64_t row = part.row; row < part.end_row; ++row)
    fn(Stretch{row * cols + part.col, part.cols()}, (row - part.row) * part.cols());
}

}  // namespace

std::string key_in_manifest(const std::string& tensor) { return std::string(kTensorKey) + tensor; }

std::string place_in_manifest(const TensorEntry& tensor, std::span<const std::size_t> shards) {
  assert(tensor.shape.size() == 2);
  std::string place = fmt::format("{} {} {}:", spelled(tensor.dtype), tensor.shape[0], tensor.shape[1]);
  for (const std::size_t shard : shards) place += fmt::format(" {}", shard);
  return place;
}

std::string shard_name(const std::string& manifest, std::size_t rank, std::size_t ranks) {
  std::string_view stem = manifest;
  if (stem.ends_with(kTensorFileSuffix)) stem.remove_suffix(kTensorFileSuffix.size());
  return fmt::format("{}-rank-{:05d}-of-{:05d}{}", stem, rank, ranks, kTensorFileSuffix);
}

TensorFile TensorFile::open(const std::string& path, Check check) try {
  return TensorFile(ReadFile::open(path), check);
} catch (const std::bad_alloc&) {
  throw runtime_failure(path + ": not enough memory for its header");
}

TensorFile::TensorFile(ReadFile file, Check check) : file_(std::move(file)), parsed_(parse_safetensors(file_)) {
  if (check == Check::all) require_checksum(file_, parsed_);
  read_manifest();
  if (check == Check::all)
    for (std::size_t shard = 1; shard < files(); ++shard) this->check(shard);
}

const StoredTensor* TensorFile::find(std::string_view name) const {
  const std::vector<StoredTensor>& all = tensors();
  const auto at = std::lower_bound(all.begin(), all.end(), name,
                                   [](const StoredTensor& tensor, std::string_view key) { return tensor.name < key; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

void TensorFile::read_manifest() {
  const CheckpointMetadata& metadata = parsed_.metadata;
  if (const auto shard = metadata.find(kShardKey); shard != metadata.end())
    throw input_error(
        fmt::format("{}: is shard {}; expected the checkpoint, whose name has no rank", name(), shard->second));
  const auto stated = metadata.find(kShardsKey), checksums = metadata.find(kShardChecksumsKey);
  if (stated == metadata.end()) return;
  const auto refuse = [&](std::string_view key) {
    return input_error(fmt::format("{}: __metadata__: {}: malformed", name(), key));
  };
  std::string_view text = stated->second;
  const std::optional<std::int64_t> count = take_number(text);
  if (!count || !text.empty() || *count < 1 || static_cast<std::size_t>(*count) > kMostShards) throw refuse(kShardsKey);
  // The value has the digits of each shard, with a blank between shards.
  const auto shards = static_cast<std::size_t>(*count);
  if (checksums == metadata.end() || checksums->second.size() != shards * (kDigits + 1) - 1)
    throw refuse(kShardChecksumsKey);
  shards_.resize(shards);
  if (!parsed_.tensors.empty()) throw input_error(name() + ": expected tensors in its shards only");
  const auto first = metadata.lower_bound(std::string(kTensorKey));
  const auto last =
      std::find_if(first, metadata.end(), [](const auto& entry) { return !entry.first.starts_with(kTensorKey); });
  parsed_.tensors.reserve(static_cast<std::size_t>(std::distance(first, last)));
  for (auto at = first; at != last; ++at) {
    StoredTensor tensor;
    tensor.name = at->first.substr(kTensorKey.size());
    std::string_view place = at->second;
    if (!take_tensor(place, tensor)) throw refuse(at->first);
    parsed_.tensors.push_back(std::move(tensor));  // metadata are sorted, so the tensors are too
  }
}

std::string TensorFile::file_name(std::size_t file) const {
  return file == 0 ? name() : shard_name(name(), file - 1, shards_.size());
}

std::string TensorFile::checksum_of_shard(std::size_t number) const {
  return parsed_.metadata.at(kShardChecksumsKey).substr(number * (kDigits + 1), kDigits);
}

ReadFile TensorFile::open_shard(std::size_t number) const {
  const std::string path = shard_name(name(), number, shards_.size());
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) throw input_error(path + ": is missing");
  try {
    return ReadFile::open(path);
  } catch (const Error& refused) {
    throw runtime_failure(refused.what());  // the file exists: the system is at fault
  }
}

StoredFile TensorFile::parse_shard(const ReadFile& file, std::size_t number) const {
  StoredFile parsed = parse_safetensors(file);
  if (const std::string expected = checksum_of_shard(number); parsed.checksum() != expected)
    throw input_error(fmt::format("{}: is of another checkpoint: its checksum is {}; expected {}", file.name(),
                                  parsed.checksum().empty() ? "not stated" : printable(parsed.checksum()), expected));
  return parsed;
}

void TensorFile::check(std::size_t file) const {
  if (file == 0) return require_checksum(file_, parsed_);
  const ReadFile shard = open_shard(file - 1);
  require_checksum(shard, parse_shard(shard, file - 1));
}

const TensorFile::Shard& TensorFile::shard(std::size_t number) const {
  const std::lock_guard lock(*opening_);
  std::unique_ptr<const Shard>& shard = shards_[number];
  if (!shard) {
    const ReadFile file = open_shard(number);
    shard = std::make_unique<const Shard>(Shard{file.size(), parse_shard(file, number)});
  }
  return *shard;
}

std::vector<std::size_t> TensorFile::shards_of(const StoredTensor& tensor) const {
  const std::string& place = parsed_.metadata.at(key_in_manifest(tensor.name));
  std::string_view text = place;
  text.remove_prefix(text.find(':') + 1);
  std::vector<std::size_t> shards;
  while (!text.empty()) {
    const std::optional<std::int64_t> number = take(text, ' ') ? take_number(text) : std::nullopt;
    if (!number || static_cast<std::size_t>(*number) >= shards_.size())
      throw input_error(fmt::format("{}: __metadata__: {}{}: malformed", name(), kTensorKey, tensor.name));
    shards.push_back(static_cast<std::size_t>(*number));
  }
  return shards;
}

// Elements that are consecutive both in a shard and in the result.
struct TensorFile::Source {
  std::size_t shard = 0, offset = 0;   // bytes, in the shard's data
  std::int64_t target = 0, count = 0;  // elements, in the result
};

// Adds the sources in the order of the shard's parts.
void TensorFile::add_sources(const StoredTensor& tensor, std::size_t number, std::span<const Stretch> wanted,
                             std::vector<Source>& sources) const {
  const StoredFile& stored = shard(number).parsed;
  const std::int64_t cols = tensor.shape[1], width = bytes_of_spelled(tensor.dtype);
  // [wanted stretch] its begin in the result.
  std::vector<std::int64_t> targets;
  std::int64_t target = 0;
  for (const Stretch& stretch : wanted) targets.push_back(std::exchange(target, target + stretch.count));
  const auto add = [&](const StoredTensor& held, const TensorPart& part) {
    if (held.dtype != tensor.dtype || part.end_row > tensor.shape[0] || part.end_col > cols ||
        static_cast<std::int64_t>(held.end - held.begin) != part.rows() * part.cols() * width)
      throw input_error(
          fmt::format("{}: tensor {}: does not fit what {} says of it", file_name(number + 1), held.name, name()));
    for_stretches(part, cols, [&](const Stretch& here, std::int64_t in_part) {
      auto at = std::upper_bound(wanted.begin(), wanted.end(), here.begin,
                                 [](std::int64_t begin, const Stretch& stretch) { return begin < stretch.end(); });
      for (; at != wanted.end() && at->begin < here.end(); ++at) {
        const std::int64_t begin = std::max(at->begin, here.begin), end = std::min(at->end(), here.end());
        const auto offset = held.begin + static_cast<std::size_t>((in_part + begin - here.begin) * width);
        const std::int64_t to = targets[static_cast<std::size_t>(at - wanted.begin())] + begin - at->begin;
        sources.push_back({number, offset, to, end - begin});
      }
    });
  };
  // The name of a part is the tensor's name and a text that begins with "[".
  const auto by_name = [](const StoredTensor& held, const std::string& key) { return held.name < key; };
  auto at = std::lower_bound(stored.tensors.begin(), stored.tensors.end(), tensor.name, by_name);
  if (at != stored.tensors.end() && at->name == tensor.name) add(*at, {0, tensor.shape[0], 0, cols});
  at = std::lower_bound(at, stored.tensors.end(), tensor.name + "[", by_name);
  for (; at != stored.tensors.end() && at->name.starts_with(tensor.name + "["); ++at)
    if (const auto named = part_named(at->name); named && named->first == tensor.name) add(*at, named->second);
}

// Returns the sources; throws unless they make up all wanted elements.
std::vector<TensorFile::Source> TensorFile::find_sources(const StoredTensor& tensor,
                                                         std::span<const Stretch> wanted) const {
  std::vector<Source> sources;
  for (const std::size_t number : shards_of(tensor)) add_sources(tensor, number, wanted, sources);
  std::vector<const Source*> order;
  for (const Source& source : sources) order.push_back(&source);
  std::sort(order.begin(), order.end(), [](const Source* a, const Source* b) { return a->target < b->target; });
  std::int64_t have = 0;
  bool is_once = true;
  for (const Source* source : order) is_once = is_once && source->target == std::exchange(have, have + source->count);
  if (!is_once || have != elements_of(wanted))
    throw input_error(
        fmt::format("{}: tensor {}: its shards do not have each of its elements once", name(), tensor.name));
  return sources;
}

void TensorFile::read_sources(std::span<const Source> sources, std::int64_t width, std::byte* to) const {
  for (std::size_t next = 0; next < sources.size();) {
    const std::size_t number = sources[next].shard;
    const Shard& stored = shard(number);
    const ReadFile file = open_shard(number);
    if (file.size() != stored.bytes)
      throw runtime_failure(fmt::format("{}: was changed while it is in use: it had {} bytes, now it has {}",
                                        file.name(), stored.bytes, file.size()));
    while (next < sources.size() && sources[next].shard == number) {
      // Rows that are consecutive at both ends are read at once.
      const Source& source = sources[next++];
      std::int64_t count = source.count;
      for (; next < sources.size() && sources[next].shard == number &&
             sources[next].offset == source.offset + static_cast<std::size_t>(count * width) &&
             sources[next].target == source.target + count;
           ++next)
        count += sources[next].count;
      file.read(stored.parsed.data_begin + source.offset, static_cast<std::size_t>(count * width),
                to + source.target * width);
    }
  }
}

std::span<const std::byte> TensorFile::data(const StoredTensor& tensor, std::vector<std::byte>& scratch) const {
  if (shards_.empty()) return file_.view(parsed_.data_begin + tensor.begin, tensor.end - tensor.begin, scratch);
  const Stretch all{0, tensor.shape[0] * tensor.shape[1]};
  const std::int64_t width = bytes_of_spelled(tensor.dtype);
  // Memory is taken for the data that exist, and not for the size that the manifest claims.
  const std::vector<Source> sources = find_sources(tensor, {&all, 1});
  scratch.resize(static_cast<std::size_t>(all.count * width));
  read_sources(sources, width, scratch.data());
  return scratch;
}

void TensorFile::read(const StoredTensor& tensor, std::span<const Stretch> wanted, std::byte* to) const {
  const std::int64_t width = bytes_of_spelled(tensor.dtype);
  if (!shards_.empty()) return read_sources(find_sources(tensor, wanted), width, to);
  for (const Stretch& stretch : wanted) {
    const auto begin = tensor.begin + static_cast<std::size_t>(stretch.begin * width),
               bytes = static_cast<std::size_t>(stretch.count * width);
    assert(begin + bytes <= tensor.end);
    file_.read(parsed_.data_begin + begin, bytes, to);
    to += bytes;
  }
}

}  // namespace stretto::exec
