// Predicts a step with and without its overlap knobs: best_mode SCENARIO [section.key=value…]
#include <stretto.hpp>

#include <iostream>
#include <string>

namespace {

// One number of a flat key. A program with a JSON library would parse the text.
double number_of(const std::string& json, const std::string& key) {
  return std::stod(json.substr(json.find("\"" + key + "\":") + key.size() + 3));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: best_mode SCENARIO [section.key=value…]\n";
    return 2;
  }
  try {
    stretto::api::Request request{argv[1], {argv + 2, argv + argc}};
    const double given_ms = number_of(stretto::api::simulate(request), "step_ms");
    for (const char* knob : {"overlap_param_gather", "overlap_grad_reduce", "tp_comm_overlap"})
      request.set.push_back("overlap." + std::string(knob) + "=false");
    const double plain_ms = number_of(stretto::api::simulate(request), "step_ms");
    std::cout << given_ms << " ms, without overlap " << plain_ms << " ms\n";
  } catch (const stretto::api::Error& error) {
    std::cerr << error.what() << "\n";
    return error.is_input() ? 2 : 1;
  }
}
