#include "ask/studio_address.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/data_folder.hpp"
#include "base/toml_text.hpp"
#include "predict/inputs.hpp"

namespace stretto::ask {
namespace {

// As URLSearchParams writes a part of an address.
std::string in_address(std::string_view text) {
  constexpr std::string_view kAsItIs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.*";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (kAsItIs.find(c) != std::string_view::npos)
      out += c;
    else if (c == ' ')
      out += '+';
    else
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

// Returns the name of the file of a kind that comes with Stretto, of its name or its path; "" for any other.
std::string shipped_name(const std::string& kind, const std::string& given) {
  const std::string name = std::filesystem::path(given).stem().string();
  const std::vector<std::string> names = data_names(kind);
  if (std::find(names.begin(), names.end(), name) == names.end()) return "";
  return given == name || given == data_file(kind, name) ? name : "";
}

}  // namespace

std::string studio_address(const Asked& asked) {
  const Request& request = asked.request;
  const std::string platform =
      shipped_name("platforms", request.platform.empty() ? asked.scenario.platform : request.platform);
  if (platform.empty()) return "";
  const std::string scenario = shipped_name("models", request.scenario);
  std::string address = scenario.empty() ? "toml=" + in_address(toml_text(predict::scenario_path(request.scenario)))
                                         : "scenario=" + in_address(scenario);
  if (!request.platform.empty() || scenario.empty()) address += "&platform=" + in_address(platform);
  for (const std::string& one : request.set) {
    const std::size_t end = one.find('=');
    if (end != std::string::npos)
      address += "&" + in_address(one.substr(0, end)) + "=" + in_address(one.substr(end + 1));
  }
  return address;
}

}  // namespace stretto::ask
