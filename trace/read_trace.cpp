#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "trace/chrome_json.hpp"
#include "trace/input.hpp"
#include "trace/kineto.hpp"
#include "trace/nsight.hpp"
#include "trace/trace.hpp"

namespace stretto::trace {
namespace {

TraceFile read_json(ReadFile file) {
  InputBuffer buffer(std::move(file));
  ChromeTrace trace(buffer.name(), buffer.budget());
  const ChromeHeader header = read_chrome_json(buffer, [&](const ChromeEvent& event) { trace.add(event); });
  return trace.take(header);
}

bool may_be_trace(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite");
}

}  // namespace

const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::kineto:
      return "PyTorch's profiler";
    case Origin::nsight:
      return "Nsight Systems";
    case Origin::stretto:
      return "Stretto";
  }
  return "?";
}

TraceFile parse_trace(std::string_view json, const std::string& name) {
  std::vector<std::byte> bytes(json.size());
  if (!json.empty()) std::memcpy(bytes.data(), json.data(), json.size());
  return read_json(ReadFile::of(std::move(bytes), name));
}

TraceFile read_trace(const std::string& path) {
  ReadFile file = ReadFile::open(path);
  if (file.size() == 0) throw input_error(path + ": is empty; expected a trace");
  if (is_sqlite(file)) return read_nsight(path);
  return read_json(std::move(file));
}

bool looks_like_trace(const std::string& path) {
  const ReadFile file = ReadFile::open(path);
  if (is_sqlite(file) || is_gzip(file)) return true;
  constexpr std::size_t kLooked = 1 << 20;
  std::vector<std::byte> scratch;
  const auto bytes = file.view(0, std::min(kLooked, file.size()), scratch);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.find("\"traceEvents\"") != std::string_view::npos;
}

std::vector<std::string> trace_files(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (may_be_trace(entry.path())) files.push_back(entry.path().string());
  if (error) throw input_error(path + ": " + error.message());
  if (files.empty()) throw input_error(path + ": expected traces, files *.json, *.json.gz or *.sqlite, got none");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace stretto::trace
