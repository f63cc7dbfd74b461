#include "report/colours.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace stretto {
namespace {

struct Hsl {
  double hue, saturation, lightness;  // degrees, percent, percent
};

// Computation is grey and waiting is paper, so that every saturated area is communication: one hue for each axis of
// communicators, and hues apart for people of every sight. The colours of the axes come from a search for the largest
// least distance (CIEDE2000) under full colour vision and Machado's protan, deutan and tritan sight.
struct Family {
  const char *light, *dark;          // of the first member
  std::vector<const char*> members;  // the first, which most often appear together, differ most
};
const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"#c4461f", "#e4532c", {"tp", "tp.ring", "tp.copy"}},
      {"#c09c30", "#cfb235", {"dp", "dp.gather", "dp.instances", "dp.copy", "dp.gather.copy"}},
      {"#2e14b4", "#8a45d6", {"pp.forward", "pp.backward", "pp.forward.1", "pp.backward.1"}},
      {"#e858da",
       "#d06ccb",
       {"cp", "cp.exchange", "cp.flash", "cp.copy", "cp.exchange.copy", "cp.p2p", "cp.all_gather", "cp.a2a",
        "cp.a2a+p2p", "cp.exchange.a2a", "cp.exchange.a2a+p2p", "cp.all_gather.copy", "cp.a2a.copy",
        "cp.exchange.a2a.copy", "cp.exchange.a2a+p2p.copy"}},
      {"#9a6aad", "#b084c0", {"embedding"}},
      {"#4a943c", "#6fba5f", {"router", "router.loads"}},
      {"#22699a", "#78d0ff", {"ep", "ep.counts", "ep.copy", "etp", "etp.copy", "ep.flash"}},
      {"#7d6f36", "#c5b476", {"edp", "edp.gather", "edp.copy", "edp.gather.copy"}},
      {"#869b27", "#b6ce59", {"all"}},
      {"#807352", "#ab9f7d", {"other"}},
  };
  return kFamilies;
}
// Lightness of further members.
constexpr std::array kLightness = {48, 70, 34, 59, 41, 78, 53, 65, 37, 45, 74, 51, 62, 56, 67};  // percent

// Converts by the definition of HSL in CSS Color Module Level 3.
std::string hex_of(const Hsl& of) {
  const double saturation = of.saturation / 100, lightness = of.lightness / 100;
  const auto channel = [&](double n) {
    const double k = std::fmod(n + of.hue / 30, 12);
    return lightness - saturation * std::min(lightness, 1 - lightness) * std::clamp(std::min(k - 3, 9 - k), -1.0, 1.0);
  };
  const auto byte = [&](double n) { return static_cast<int>(std::lround(255 * channel(n))); };
  return fmt::format("#{:02x}{:02x}{:02x}", byte(0), byte(8), byte(4));
}

Hsl hsl_of(const char* hex) {
  const int rgb = std::stoi(hex + 1, nullptr, 16);
  const double r = (rgb >> 16) / 255., g = (rgb >> 8 & 255) / 255., b = (rgb & 255) / 255.;
  const double most = std::max({r, g, b}), least = std::min({r, g, b}), chroma = most - least;
  const double lightness = (most + least) / 2;
  if (chroma == 0) return {0, 0, 100 * lightness};
  const double sixth = most == r   ? std::fmod((g - b) / chroma + 6, 6)
                       : most == g ? (b - r) / chroma + 2
                                   : (r - g) / chroma + 4;
  return {60 * sixth, 100 * chroma / (1 - std::abs(2 * lightness - 1)), 100 * lightness};
}

std::string class_of(std::string_view communicator) {
  std::string name = "comm-" + std::string(communicator);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '+' || c == '_'; }, '-');
  return name;
}

std::vector<Colour> make_palette() {
  std::vector<Colour> colours = {
      {"phase-setup", "#dcdfe4", "#d3d7de"},
      {"phase-forward", "#c6cbd3", "#b9bfc9"},
      {"phase-dgrad", "#8a92a0", "#79828f"},
      {"phase-wgrad", "#4e5665", "#4a5262"},
      {"phase-grad-sync", "#dccb94", "#6f6434"},
      {"phase-optimizer", "#262626", "#e6e6e6"},
      {"phase-param-sync", "#e9e0bf", "#565034"},
      // Rows of experts on their way, and on their way back.
      {"dispatch", "#3a86b8", "#5bb8ee"},
      {"combine", "#15507a", "#a9dcff"},
      // Parts of a step's time.
      {"compute", "#7d8594", "#868e9b"},
      {"core-wait", "#cdbfa8", "#665a48"},
      {"queue-wait", "#b9a78c", "#7a6c57"},
      {"host-wait", "#9c8f7a", "#94866e"},
      {"bubble", "#e4e2dc", "#2c3036"},
      // The two sides of a step.
      {"predicted", "#7a8ca5", "#6f829c"},
      {"measured", "#3d4a5c", "#c3cedd"},
      // Parts of memory: what a tensor keeps is grey, what is outside of tensors is paper.
      {"parameters", "#414958", "#c3cad6"},
      {"optimizer-state", "#a9afbc", "#6b7686"},
      {"gradients", "#7a8290", "#98a1b1"},
      {"activations", "#d3d8e0", "#3f4959"},
      {"workspace", "#bcc4cf", "#545e6e"},
      {"inputs", "#98a0ad", "#828b9a"},
      {"other-tensors", "#d8cfb4", "#6a6248"},
      {"fragmentation", "#f0e8d4", "#4c473a"},
      {"outside-tensors", "#e6dfcb", "#565043"},
  };
  for (const Family& family : families())
    for (std::size_t i = 0; i < family.members.size(); ++i) {
      if (i == 0) {
        colours.push_back({class_of(family.members[i]), family.light, family.dark});
        continue;
      }
      Hsl light = hsl_of(family.light), dark = hsl_of(family.dark);
      light.lightness = kLightness.at(i);
      dark.lightness = 20 + 0.72 * kLightness.at(i);  // on a dark page dark shades become lighter
      colours.push_back({class_of(family.members[i]), hex_of(light), hex_of(dark)});
    }
  return colours;
}

}  // namespace

const std::vector<Colour>& palette() {
  static const std::vector<Colour> kPalette = make_palette();
  return kPalette;
}

std::string palette_css() {
  std::string light, dark, classes;
  for (const Colour& colour : palette()) {
    light += fmt::format(" --{}: {};", colour.name, colour.light);
    dark += fmt::format(" --{}: {};", colour.name, colour.dark);
    classes += fmt::format(".{0} {{ fill: var(--{0}); background: var(--{0}); }}\n", colour.name);
  }
  return ":root {" + light + " }\n@media (prefers-color-scheme: dark) { :root {" + dark + " } }\n" + classes;
}

std::string colour_of_communicator(std::string_view communicator) {
  // A communicator of all ranks is named after the axes: "pp-dp".
  if (communicator.find('-') != std::string_view::npos) return class_of("all");
  for (const Family& family : families())
    for (const char* member : family.members)
      if (communicator == member) return class_of(communicator);
  return class_of("other");
}

std::string colour_of_exchange(CollectiveKind kind) { return name_of(kind); }

std::string colour_of_phase(Phase phase) {
  std::string name = std::string("phase-") + name_of(phase);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace stretto
