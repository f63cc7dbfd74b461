#include "exec/cuda/module/plan_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/new_file.hpp"
#include "base/read_file.hpp"
#include "base/user_folder.hpp"

namespace stretto::cuda {
namespace {

constexpr const char* kFormat = "stretto plans 1";
constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // thousands of shapes take a few hundred KiB

// FNV-1a, 64 bits (Fowler, Noll, Vo): equal on all systems, unlike std::hash.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string line_of(const PlanFile::Numbers& numbers) {
  std::string line;
  for (const std::int64_t number : numbers) line += (line.empty() ? "" : " ") + std::to_string(number);
  return line;
}

std::optional<PlanFile::Numbers> numbers_of(const std::string& text) {
  std::istringstream in(text);
  PlanFile::Numbers numbers;
  for (std::int64_t number = 0; in >> number;) numbers.push_back(number);
  if (!in.eof() || numbers.empty()) return std::nullopt;
  return numbers;
}

// Returns the file's text: the format, what it was made for, a line for each plan ("key: plan"), and the hash of all
// before it.
std::string text_of(const std::string& made_for, const std::map<PlanFile::Numbers, PlanFile::Numbers>& plans) {
  std::string text = fmt::format("{}\n{}\n", kFormat, made_for);
  for (const auto& [key, plan] : plans) text += line_of(key) + ": " + line_of(plan) + "\n";
  return text + fmt::format("end {:016x}\n", hash_of(text));
}

std::optional<std::map<PlanFile::Numbers, PlanFile::Numbers>> plans_of(const std::string& text,
                                                                       const std::string& made_for) {
  const std::size_t end = text.rfind("end ");
  if (end == std::string::npos || text.substr(end) != fmt::format("end {:016x}\n", hash_of(text.substr(0, end))))
    return std::nullopt;
  std::istringstream in(text.substr(0, end));
  std::string line;
  if (!std::getline(in, line) || line != kFormat || !std::getline(in, line) || line != made_for) return std::nullopt;
  std::map<PlanFile::Numbers, PlanFile::Numbers> plans;
  while (std::getline(in, line)) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) return std::nullopt;
    auto key = numbers_of(line.substr(0, colon)), plan = numbers_of(line.substr(colon + 2));
    if (!key || !plan) return std::nullopt;
    plans[std::move(*key)] = std::move(*plan);
  }
  return plans;
}

}  // namespace

PlanFile::PlanFile(const std::string& folder, const std::string& made_for) : folder_(folder), made_for_(made_for) {
  for (char& c : made_for_)
    if (c == '\n') c = ' ';
  if (folder_.empty()) return;
  path_ = fmt::format("{}/plans-{:016x}.txt", folder_, hash_of(made_for_));
  plans_ = read();
}

std::map<PlanFile::Numbers, PlanFile::Numbers> PlanFile::read() {
  std::error_code problem;
  if (!std::filesystem::exists(path_, problem)) return {};
  std::string reason = "it is damaged";
  try {
    ReadFile file = ReadFile::open(path_);
    if (file.size() <= kMostBytes) {
      const std::vector<std::byte> bytes = std::move(file).take();
      if (auto plans = plans_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, made_for_)) return *plans;
    }
  } catch (const Error& error) {
    reason = error.what();
  }
  note_ = fmt::format("plans in {} are made again: {}", path_, reason);
  return {};
}

const PlanFile::Numbers* PlanFile::find(const Numbers& key) const {
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : &found->second;
}

void PlanFile::put(const Numbers& key, Numbers plan) {
  plans_[key] = std::move(plan);
  is_new_ = true;
}

void PlanFile::save() {
  if (!is_new_ || path_.empty()) return;
  is_new_ = false;
  try {
    std::filesystem::create_directories(folder_);
    std::map<Numbers, Numbers> all = read();
    for (const auto& [key, plan] : plans_) all[key] = plan;
    NewFile file(path_);
    file.write(text_of(made_for_, all));
    file.finish();
  } catch (const std::exception& error) {
    note_ = fmt::format("plans are not kept: {}", error.what());
  }
}

std::string plan_folder() { return user_folder("XDG_CACHE_HOME", ".cache"); }

}  // namespace stretto::cuda
