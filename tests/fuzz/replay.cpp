// Runs a fuzz target without libFuzzer, so that the sanitized build of GCC can run it too: first every file of the
// given folders as it is, then mutations of these files. The mutations follow from their numbers, so a finding is
// repeated by the same command.
//   replay_scenario MUTATIONS FOLDER...
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

using Bytes = std::vector<std::uint8_t>;

char current[512] = "before the first input\n";  // a signal handler may read no more than plain memory

void tell() {
  const ssize_t written = write(STDERR_FILENO, current, std::strlen(current));
  if (written < 0) _exit(1);
}

void tell_and_die(int signal_number) {
  tell();
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

// Changes a few places: a flipped bit, another byte, a piece that is doubled, removed, or taken from another input.
Bytes mutate(Bytes bytes, const std::vector<Bytes>& inputs, std::uint64_t number) {
  std::uint64_t draws = 0;
  const auto below = [&](std::size_t end) {
    return end == 0 ? 0 : static_cast<std::size_t>(stretto::random_bits(number, 0, draws++) % end);
  };
  for (std::size_t change = 0, changes = 1 + below(4); change < changes; ++change) {
    const std::size_t at = below(bytes.size()), length = std::min<std::size_t>(1 + below(32), bytes.size() - at);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = place + static_cast<std::ptrdiff_t>(length);
    switch (below(5)) {
      case 0:
        if (!bytes.empty()) *place = static_cast<std::uint8_t>(*place ^ (1u << below(8)));
        break;
      case 1:
        if (!bytes.empty()) *place = static_cast<std::uint8_t>(below(256));
        break;
      case 2: {
        const Bytes piece(place, end);
        bytes.insert(place, piece.begin(), piece.end());
        break;
      }
      case 3:
        bytes.erase(place, end);
        break;
      default: {
        const Bytes& other = inputs[below(inputs.size())];
        const std::size_t from = below(other.size()), count = std::min<std::size_t>(1 + below(64), other.size() - from);
        const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
        bytes.insert(place, first, first + static_cast<std::ptrdiff_t>(count));
      }
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MUTATIONS FOLDER...\n", argv[0]);
    return 2;
  }
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  const long mutations = std::strtol(argv[1], nullptr, 10);
  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  std::vector<Bytes> inputs;
  for (const std::string& name : files) {
    std::ifstream file(name, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "%s: no file in the given folders\n", argv[0]);
    return 2;
  }
  __sanitizer_set_death_callback(tell);
  for (const int number : {SIGABRT, SIGILL, SIGTRAP, SIGALRM}) signal(number, tell_and_die);
  const auto run = [](const Bytes& bytes) {
    alarm(10);  // no reader takes longer
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::snprintf(current, sizeof(current), "the input was %s\n", files[i].c_str());
    run(inputs[i]);
  }
  for (long number = 0; number < mutations; ++number) {
    const std::size_t of = static_cast<std::size_t>(number) % inputs.size();
    std::snprintf(current, sizeof(current), "the input was mutation %ld, made from %s\n", number, files[of].c_str());
    run(mutate(inputs[of], inputs, static_cast<std::uint64_t>(number)));
  }
  std::printf("%zu files and %ld mutations of them\n", inputs.size(), mutations);
  return 0;
}
