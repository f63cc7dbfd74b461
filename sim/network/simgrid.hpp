#pragma once
#include <vector>

#include "sim/fabric.hpp"
#include "sim/network/network.hpp"
#include "sim/network/rings.hpp"

namespace stretto::sim {

// Transfers as flows on a SimGrid platform (Casanova et al., JPDC 74(10), 2014): a star in which every endpoint has an
// up and a down link, and the links of `fabric` lie between them. One flow per ring edge; links are shared max-min
// (model CM02 without cross traffic or TCP window, link latency 0: α is paid before a flow starts).
//
// SimGrid allows one platform per process and never resets its clock, so make at most one network in a process; the
// engine does that in a child process per simulation (child.hpp).
//
// `rates` are the limits that start() will name; each endpoint has a sender for each of them, because SimGrid 3.32
// takes no rate for such flows.
using MakeSimgridNetwork = NetworkModel*(double link_bytes_per_s, const Fabric& fabric, const Rings& rings,
                                         std::vector<double> rates);

// Returns the maker. SimGrid and its libraries (ns-3 among others) take longer to load than most simulations, so
// simgrid.cpp is a module of its own, libstretto_simgrid.so, which the first call loads from the program's folder or
// the folder above. Throws Error(runtime) when it cannot be loaded.
MakeSimgridNetwork* load_simgrid();

}  // namespace stretto::sim

// The module's exported symbol.
extern "C" stretto::sim::MakeSimgridNetwork stretto_make_simgrid_network;
