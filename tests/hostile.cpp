#include "tests/hostile.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "exec/comm/wires.hpp"
#include "exec/launch/greeting.hpp"
#include "exec/launch/message.hpp"
#include "exec/launch/process_group.hpp"
#include "tests/as_processes.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using namespace launch;
using Twister = std::mt19937_64;

constexpr double kTimeout_s = 5;
constexpr std::size_t kMost = 20'000;  // bytes that a rank may send

std::uint64_t below(Twister& random, std::uint64_t end) { return random() % end; }

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

template <class T>
void append(Bytes& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

Bytes noise(Twister& random, std::size_t most) {
  Bytes bytes(below(random, most + 1));
  for (std::byte& byte : bytes) byte = std::byte(random());
  return bytes;
}

// Messages whose kinds and lengths may be right, wrong or huge, with some bytes after them, perhaps as many as
// announced.
Bytes random_messages(Twister& random) {
  Bytes said;
  for (std::uint64_t count = 1 + below(random, 6); count > 0; --count) {
    Header header;
    header.kind = Header::Kind(std::uint32_t(Header::Kind::part) + std::uint32_t(below(random, 9)));
    if (below(random, 10) == 0) header.kind = Header::Kind(std::uint32_t(random()));
    Bytes body = noise(random, below(random, 2) == 0 ? 8 : 5000);
    header.bytes = body.size();
    if (header.kind == Header::Kind::offer && below(random, 2) == 0) {
      body.clear();
      append(body, std::uint64_t{1} << below(random, 50));
      header.bytes = body.size();
    }
    if (below(random, 4) == 0) header.bytes = std::uint64_t{1} << below(random, 64);
    append(said, header);
    if (below(random, 8) != 0) said.insert(said.end(), body.begin(), body.end());
  }
  return said;
}

// Sends bytes; a failure is ignored, because the listener hangs up.
void say(const Socket& socket, std::span<const std::byte> bytes) {
  try {
    send_all(socket, bytes, time_for(1, bytes.size()));
  } catch (const Error&) {
  }
}

// Sends a greeting that is noise, cut short, altered, or proved with another token.
void stranger(Twister& random, int port) {
  try {
    const Socket socket = connect_to("127.0.0.1", port, time_for(1, 0));
    if (below(random, 4) == 0) return say(socket, noise(random, 200));
    launch::Hello said;
    said.caller = {std::int64_t(below(random, 4)), 3, below(random, 2) == 0 ? kNoCommunicator : 0, 0};
    if (below(random, 8) == 0) said.caller.rank = std::int64_t(random());
    said.nonce = random_nonce();
    Bytes bytes;
    append(bytes, said);
    if (below(random, 3) == 0) bytes[below(random, bytes.size())] ^= std::byte(1 + below(random, 255));
    if (below(random, 3) == 0) bytes.resize(below(random, bytes.size()));
    say(socket, bytes);
    Answer answer;
    if (bytes.size() == sizeof said && below(random, 4) != 0)
      receive_all(socket, std::as_writable_bytes(std::span(&answer, 1)), time_for(1, 0));
    const Proof proof =
        below(random, 2) == 0 ? answer.proof : prove("another token", Side::calling, said, answer.nonce);
    say(socket, proof);
    say(socket, random_messages(random));
  } catch (const Error&) {  // refused
  }
}

// Greets correctly, does nothing, some or all of what rank 1 does, and sends something else in between.
void false_rank(Twister& random, const World& world) {
  try {
    const Caller caller{1, 3, kNoCommunicator, 0};
    const Socket socket = call("127.0.0.1", world.port, time_for(2, 0), world.token, caller);
    const Socket listening = listen_on("127.0.0.1", 0);  // it never answers
    const std::uint64_t rounds = below(random, 5);
    for (std::uint64_t round = 0; round < rounds; ++round) {  // barriers, an address and parts of the right size
      std::string text(round < 2 ? 0 : 8, 'x');
      if (round == 2) text = fmt::format("{} 127.0.0.1", below(random, 2) == 0 ? port_of(listening) : 1);
      if (round == 2 && below(random, 2) == 0) text[below(random, text.size())] = char(random());
      Bytes part;
      append(part, Header{Header::Kind::part, 0, text.size()});
      for (const char c : text) part.push_back(std::byte(c));
      say(socket, part);
    }
    if (below(random, 16) != 0) say(socket, random_messages(random));
    std::this_thread::sleep_for(std::chrono::milliseconds(below(random, 20)));
    if (below(random, 2) == 0) say(socket, noise(random, 3000));
    Bytes rest(1 << 16);
    // It may also read the messages it gets, or none, until the other end hangs up.
    if (below(random, 2) == 0)
      while (receive_all(socket, std::span(rest).first(1), time_for(3, 0))) {
      }
  } catch (const Error&) {
  }
}

// The communication of a job outside its steps.
void work(ProcessGroup& group, const Schedule& schedule) {
  group.watch(1);
  group.barrier();
  const wire::Wires wires(group, schedule, bind(schedule, group.rank()), 2);
  for (std::uint64_t round = 0; round < 3; ++round) {
    group.barrier();
    group.all_gather_value(round);
    const Bytes large(group.rank() == 2 ? kMost : 10);
    group.all_gather(large, kMost);
    group.gather(large, kMost);
    group.any(false);
  }
}

}  // namespace

HostileReport run_hostile(std::uint64_t first_seed, int conversations) {
  HostileReport report;
  const Schedule schedule = build_schedule(tiny_scenario(3, "plain"));
  const std::int64_t before = resident_bytes();
  for (std::uint64_t seed = first_seed; seed < first_seed + static_cast<std::uint64_t>(conversations); ++seed) {
    Twister random(seed);
    const bool knows_token = seed % 2 == 0;
    World first = reserve_world(3);
    first.token = "seed " + std::to_string(seed);
    std::vector<std::string> errors(3);
    const auto begin = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (const std::int64_t rank : {0, 1, 2}) {
        if (rank == 1 && knows_token) continue;
        threads.emplace_back([&, rank, late = below(random, 5)] {
          World world = first;
          world.rank = rank;
          if (rank != 0) world.listening = -1;
          // Strangers may connect first.
          if (rank != 0 && !knows_token) std::this_thread::sleep_for(std::chrono::milliseconds(late));
          try {
            ProcessGroup group(world, kTimeout_s);
            work(group, schedule);
          } catch (const Error& error) {
            errors[static_cast<std::size_t>(rank)] = error.what();
          } catch (const std::exception& error) {
            errors[static_cast<std::size_t>(rank)] = std::string("NO ERROR OF OURS: ") + error.what();
          }
        });
      }
      if (knows_token) {
        false_rank(random, first);
      } else {
        for (std::uint64_t count = 1 + below(random, 4); count > 0; --count) stranger(random, first.port);
      }
      report.most_more_bytes = std::max(report.most_more_bytes, resident_bytes() - before);
    }
    const double took_s = std::chrono::duration<double>(Clock::now() - begin).count();
    report.longest_s = std::max(report.longest_s, took_s);
    const auto wrong = [&](const std::string& what) {
      report.wrong.push_back(
          fmt::format("seed {}: {}: \"{}\", \"{}\", \"{}\"", seed, what, errors[0], errors[1], errors[2]));
    };
    const bool failed = !errors[0].empty() || !errors[2].empty();
    ++(failed ? report.failed : report.lived);
    if (failed && !knows_token) wrong("a stranger failed the job");
    if (took_s > 2 * kTimeout_s + 5) wrong(fmt::format("it took {:.1f} s", took_s));
    for (const std::string& error : errors)
      if (std::any_of(error.begin(), error.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }) ||
          error.starts_with("NO ERROR"))
        wrong("that is no line");
    if (failed && (errors[0].empty() || errors[2].empty()) && !knows_token) wrong("not all have failed");
  }
  return report;
}

}  // namespace stretto::testing
