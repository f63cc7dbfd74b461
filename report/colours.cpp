#include "report/colours.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace stretto {
namespace {

// Communicators of one kind, such as the tensor-parallel group and the ring of its messages: one hue, in shades. The
// first members, which most often appear together on a page, differ most.
struct Family {
  double hue, saturation;  // degrees, percent
  std::vector<const char*> members;
};
const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {22, 80, {"tp", "tp.ring", "tp.copy"}},
      {0, 68, {"dp", "dp.gather", "dp.instances", "dp.copy", "dp.gather.copy"}},
      {255, 50, {"pp.forward", "pp.backward", "pp.forward.1", "pp.backward.1"}},
      {332,
       60,
       {"cp", "cp.exchange", "cp.flash", "cp.copy", "cp.exchange.copy", "cp.p2p", "cp.all_gather", "cp.a2a",
        "cp.a2a+p2p", "cp.exchange.a2a", "cp.exchange.a2a+p2p", "cp.all_gather.copy", "cp.a2a.copy",
        "cp.exchange.a2a.copy", "cp.exchange.a2a+p2p.copy"}},
      {295, 50, {"embedding"}},
      {110, 45, {"router", "router.loads"}},
      {190, 70, {"ep", "ep.counts", "ep.copy", "etp", "etp.copy", "ep.flash"}},
      {12, 30, {"edp", "edp.gather", "edp.copy", "edp.gather.copy"}},
      {70, 60, {"all"}},
      {48, 25, {"other"}},
  };
  return kFamilies;
}
constexpr std::array kLightness = {48, 70, 34, 59, 41, 78, 53, 65, 37, 45, 74, 51, 62, 56, 67};  // percent

// Converts by the definition of HSL in CSS Color Module Level 3; hue in degrees, the others 0 to 1.
std::string hex_of(double hue, double saturation, double lightness) {
  const auto channel = [&](double n) {
    const double k = std::fmod(n + hue / 30, 12);
    return lightness - saturation * std::min(lightness, 1 - lightness) * std::clamp(std::min(k - 3, 9 - k), -1.0, 1.0);
  };
  const auto byte = [&](double n) { return static_cast<int>(std::lround(255 * channel(n))); };
  return fmt::format("#{:02x}{:02x}{:02x}", byte(0), byte(8), byte(4));
}

std::string class_of(std::string_view communicator) {
  std::string name = "comm-" + std::string(communicator);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '+' || c == '_'; }, '-');
  return name;
}

std::vector<Colour> make_palette() {
  std::vector<Colour> colours = {
      {"phase-setup", "#a3a19a", "#77756e"},
      {"phase-forward", "#2a78d6", "#4a92e6"},
      {"phase-dgrad", "#1a9d70", "#25a879"},
      {"phase-wgrad", "#e0a000", "#c99208"},
      {"phase-grad-sync", "#8fbcec", "#2f5f93"},
      {"phase-optimizer", "#262626", "#e6e6e6"},
      {"phase-param-sync", "#9adbe8", "#3a6f7a"},
      // Rows of experts on their way, and on their way back.
      {"dispatch", "#0a9396", "#3fb8bb"},
      {"combine", "#7b2cbf", "#a96be0"},
      // Parts of a step's time.
      {"compute", "#1f4e8c", "#3a6ab0"},
      {"core-wait", "#d9c7a0", "#6b5c3a"},
      {"queue-wait", "#7a4a22", "#a87a4d"},
      {"host-wait", "#5f5e59", "#a9a79f"},
      {"bubble", "#cfcdc6", "#4a4843"},
      // The two sides of a step.
      {"predicted", "#7a8ca5", "#6f829c"},
      {"measured", "#3d4a5c", "#c3cedd"},
      // Parts of memory.
      {"parameters", "#3d6fb0", "#5f90cf"},
      {"optimizer-state", "#8f86c9", "#7d74bd"},
      {"gradients", "#c98a5e", "#b27a50"},
      {"activations", "#6fae8f", "#568f74"},
      {"workspace", "#b8b4a8", "#6a675f"},
      {"inputs", "#a9cbe6", "#3f6384"},
      {"other-tensors", "#d7b36a", "#8a6a2c"},
      {"fragmentation", "#e3d5d9", "#5b4a50"},
      {"outside-tensors", "#8d8d99", "#4d4d59"},
  };
  for (const Family& family : families())
    for (std::size_t i = 0; i < family.members.size(); ++i) {
      const double lightness = kLightness.at(i) / 100.0, saturation = family.saturation / 100;
      // On a dark page the order of lightness is reversed: dark shades become lighter.
      colours.push_back({class_of(family.members[i]), hex_of(family.hue, saturation, lightness),
                         hex_of(family.hue, saturation * 0.85, 0.2 + 0.72 * lightness)});
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
