#include "base/module.hpp"
#include "sim/network/simgrid.hpp"

namespace stretto::sim {

MakeSimgridNetwork* load_simgrid() {
  static auto* const maker =
      reinterpret_cast<MakeSimgridNetwork*>(load_module("libstretto_simgrid.so", "stretto_make_simgrid_network"));
  return maker;
}

}  // namespace stretto::sim
