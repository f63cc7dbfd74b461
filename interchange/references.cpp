#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/budget.hpp"
#include "interchange/recipe.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;
constexpr int kMaxReferenceDepth = 16;

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts(1);
  for (const char c : path)
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// Resolves OmegaConf's references: ${a.b} from the root, ${.b} from the same level, ${..b} one level up,
// ${resolver:arguments}.
class Resolver {
 public:
  Resolver(Json& root, const std::string& name) : root_(root), budget_(name) {}

  void visit(Json& node, std::vector<std::string>& path) {
    if (path.size() > 64) return;
    if (node.is_object())
      for (auto& [key, value] : node.items()) {
        path.push_back(key);
        visit(value, path);
        path.pop_back();
      }
    else if (node.is_string() && node.get_ref<const std::string&>().find("${") != std::string::npos)
      node = value_of(node.get<std::string>(), path, 0);
  }

 private:
  Json value_of(const std::string& text, const std::vector<std::string>& path, int depth) {
    constexpr std::size_t kLooksOfStep = 64;
    budget_.look(text.size() + kLooksOfStep * (path.size() + 1));
    if (depth > kMaxReferenceDepth) return nullptr;
    if (!text.starts_with("${") || !text.ends_with("}")) return text;  // the reference is only a part of a path or name
    const std::string inner = text.substr(2, text.size() - 3);
    const std::size_t colon = inner.find(':');
    if (colon != std::string::npos && inner.find("${") > colon)
      return computed(inner.substr(0, colon), inner.substr(colon + 1), path, depth);
    std::vector<std::string> at(path.begin(), path.end());
    std::string rest = inner;
    if (rest.starts_with('.')) {
      const std::size_t levels = std::min(rest.find_first_not_of('.'), rest.size());
      at.resize(at.size() - std::min(levels, at.size()));
      rest.erase(0, levels);
    } else {
      at.clear();
    }
    const std::vector<std::string> names = parts_of(rest);
    at.insert(at.end(), names.begin(), names.end());
    return found(at, depth);
  }

  Json found(const std::vector<std::string>& path, int depth) {
    // A launcher puts its stage in front: ${training.model.hidden_size}.
    for (std::size_t skip = 0; skip <= 1 && skip < path.size(); ++skip) {
      const Json* node = &root_;
      for (std::size_t i = skip; i < path.size() && node != nullptr; ++i)
        node = node->is_object() && node->contains(path[i]) ? &(*node)[path[i]] : nullptr;
      if (node == nullptr) continue;
      keep(*node);
      if (!node->is_string()) return *node;
      return value_of(node->get<std::string>(),
                      std::vector<std::string>(path.begin() + static_cast<std::ptrdiff_t>(skip), path.end()),
                      depth + 1);
    }
    return nullptr;
  }

  // Charges a copy of a value: a small one that is named often, or names others, becomes as large as any.
  void keep(const Json& value) {
    budget_.keep(sizeof(Json) + (value.is_string() ? value.get_ref<const std::string&>().size() : 0));
    if (value.is_structured())
      for (const auto& [key, one] : value.items()) {
        budget_.keep(key.size());
        keep(one);
      }
  }

  Json computed(const std::string& name, const std::string& arguments, const std::vector<std::string>& path,
                int depth) {
    std::vector<double> numbers;
    for (const std::string& one : split(arguments)) {
      const Json value = one.starts_with("${") ? value_of(one, path, depth + 1) : Json::parse(one, nullptr, false);
      if (!value.is_number()) return nullptr;
      numbers.push_back(value.get<double>());
    }
    if (numbers.empty()) return nullptr;
    double made = numbers[0];
    for (std::size_t i = 1; i < numbers.size(); ++i) {
      if (name == "multiply")
        made *= numbers[i];
      else if (name == "sum" || name == "add" || name == "plus")
        made += numbers[i];
      else if (name == "divide" || name == "divide_floor" || name == "divide_ceil")
        made /= numbers[i];
      else
        return nullptr;
    }
    if (name == "divide_ceil") made = std::ceil(made);
    if (name == "divide_floor") made = std::floor(made);
    if (!std::isfinite(made) || std::abs(made) > 1e15) return nullptr;
    return made == std::floor(made) ? Json(static_cast<std::int64_t>(made)) : Json(made);
  }

  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts(1);
    int inside = 0;
    for (const char c : text) {
      inside += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (c == ',' && inside == 0)
        parts.emplace_back();
      else if (c != ' ' || inside > 0)
        parts.back() += c;
    }
    return parts;
  }

  Json& root_;
  Budget budget_;
};

}  // namespace

void resolve_references(Json& root, const std::string& name) {
  std::vector<std::string> path;
  Resolver(root, name).visit(root, path);
}

}  // namespace stretto
