#include "tests/random_layout.hpp"

#include "base/error.hpp"
#include "tests/random_scenario.hpp"

namespace stretto::testing {
namespace {

constexpr int kMostDraws = 100;

}  // namespace

std::string RandomScenario::toml() {
  sizes();
  split();
  context_of_layers();
  style();
  micro_batches();
  recompute();
  overlap();
  optimizer();
  streams();
  fusions();
  compare();
  latent();
  experts();
  recompute_modules();
  linear_attention();
  if (codes_ != nullptr) low_precision();
  for (TomlSection* section : {&model_, &parallel_, &overlap_, &training_}) draw_others(*section);
  std::string text;
  for (const TomlSection* section : {&model_, &cluster_, &parallel_, &overlap_, &training_, &compare_})
    add(*section, text);
  return text + subsections_;
}

namespace {

RandomLayout drawn_layout(std::uint64_t seed, Draw* codes) {
  Draw draw(seed), others(~seed), mixers(seed * 31 + 11);
  RandomLayout layout;
  for (; layout.refused < kMostDraws; ++layout.refused) {
    RandomScenario scenario(draw, others, mixers, codes);
    layout.toml = scenario.toml();
    layout.keys = scenario.keys();
    try {
      layout.scenario = parse_scenario(layout.toml, "random.toml");
      return layout;
    } catch (const Error&) {
    }
  }
  throw runtime_failure("every draw was refused, lastly\n" + layout.toml);
}

}  // namespace

RandomLayout random_layout(std::uint64_t seed) { return drawn_layout(seed, nullptr); }
RandomLayout random_layout_in_codes(std::uint64_t seed) {
  Draw codes(seed * 31 + 7);
  return drawn_layout(seed, &codes);
}

}  // namespace stretto::testing
