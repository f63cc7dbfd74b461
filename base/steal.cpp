#include "base/steal.hpp"

#include <fstream>
#include <string>

namespace stretto {

double StealClock::share_since_last() {
  std::ifstream file("/proc/stat");
  std::string label;
  std::int64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (!(file >> label >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)) return 0;
  const std::int64_t used = user + nice + system + irq + softirq;
  const std::int64_t stolen = steal - std::exchange(stolen_, steal), running = used - std::exchange(used_, used);
  return stolen + running > 0 ? static_cast<double>(stolen) / static_cast<double>(stolen + running) : 0;
}

}  // namespace stretto
