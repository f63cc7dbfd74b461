#include "exec/launch/process_group.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "exec/launch/greeting.hpp"
#include "tests/as_processes.hpp"

namespace stretto::launch {
namespace {

using testing::as_processes;
using testing::reserve_world;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

TEST_CASE("processes gather what each has, in the order of ranks") {
  for (const int size : {1, 2, 5}) {
    const std::vector<std::string> errors = as_processes(size, 10, [&](ProcessGroup& group) {
      for (int round = 0; round < 20; ++round) {
        // Texts of different sizes, some empty, one large.
        const auto text_for = [&](std::int64_t rank) {
          return std::string(rank == 1 && round == 7 ? 3'000'000 : (rank + round) % 3, char('a' + rank));
        };
        const std::vector<Bytes> all = group.all_gather(bytes_of(text_for(group.rank())), 3'000'000);
        if (all.size() != static_cast<std::size_t>(size)) throw runtime_failure("a part is missing");
        for (std::int64_t rank = 0; rank < size; ++rank)
          if (text_of(all[static_cast<std::size_t>(rank)]) != text_for(rank)) throw runtime_failure("a part is wrong");
        // Ranks that only give a part need not wait.
        const std::vector<Bytes> gathered = group.gather(bytes_of(text_for(group.rank())), 3'000'000);
        if (gathered.size() != (group.rank() == 0 ? static_cast<std::size_t>(size) : 0))
          throw runtime_failure("gather");
        if (group.any(group.rank() == size - 1) != true || group.any(false)) throw runtime_failure("any");
      }
      group.barrier();
    });
    for (const std::string& error : errors) CHECK(error.empty());
  }
}

TEST_CASE("what fails one process fails all, with its reason") {
  for (const std::int64_t failing : {0, 2}) {
    const std::vector<std::string> errors = as_processes(4, 10, [&](ProcessGroup& group) {
      std::atomic<bool> called{false};
      group.on_failure(
          [&](const std::string& reason) { called = reason.find("the disk is full") != std::string::npos; });
      if (group.rank() == failing) {
        group.fail("the disk is full");
        throw runtime_failure("failed");
      }
      try {
        group.barrier();
      } catch (const Error&) {
        for (int i = 0; i < 200 && !called; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (!called) throw runtime_failure("nobody called");
        throw;
      }
    });
    for (std::int64_t rank = 0; rank < 4; ++rank)
      if (rank != failing)
        CHECK(errors[static_cast<std::size_t>(rank)] == "rank " + std::to_string(failing) + ": the disk is full");
  }
}

TEST_CASE("a process that leaves before the others, or never comes back, is named") {
  const std::vector<std::string> left = as_processes(3, 10, [&](ProcessGroup& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // a late rank has not ended
    if (group.rank() != 2) group.barrier();
  });
  CHECK_THAT(left[0], Catch::Contains("2 ended before the others"));  // rank 1 may have given up meanwhile
  CHECK(left[2].empty());
  const std::vector<std::string> hung = as_processes(3, 2, [&](ProcessGroup& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(4500));
    group.barrier();
  });
  CHECK(hung[0] == "waited 2 s for rank 1");
}

TEST_CASE("a rank that others wait for in vain is named though they came before rank 0") {
  const std::vector<std::string> errors = as_processes(3, 2, [&](ProcessGroup& group) {
    std::this_thread::sleep_for(std::chrono::milliseconds(group.rank() == 0 ? 1000 : group.rank() == 1 ? 5500 : 0));
    group.barrier();
  });
  CHECK(errors[0] == "waited 2 s for rank 1");
  CHECK(errors[2] == "rank 0: waited 2 s for rank 1");
}

TEST_CASE("long work is a sign of life where the group watches") {
  const std::vector<std::string> errors = as_processes(3, 20, [&](ProcessGroup& group) {
    // starts to watch later than the others
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    group.watch(1.5);
    group.barrier();
    if (group.rank() != 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    group.barrier();
    // A process that has finished has left, and is not waited for.
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  });
  for (const std::string& error : errors) CHECK(error.empty());
}

TEST_CASE("wrong input on one rank is wrong input on all") {
  std::atomic<int> inputs{0};
  constexpr int rounds = 20;  // which process hears of it first, and from which one, differs
  for (int round = 0; round < rounds; ++round)
    as_processes(3, 10, [&](ProcessGroup& group) {
      const std::int64_t wrong = round % 2;
      try {
        group.barrier();
        if (group.rank() == wrong) throw input_error("no such file");
        group.barrier();
      } catch (const Error& error) {
        group.fail(error.what(), error.kind());
        inputs += error.kind() == ErrorKind::input;
      }
    });
  CHECK(inputs == 3 * rounds);
}

TEST_CASE("what a rank says that nobody asked for fails all, and its texts do nothing to a terminal") {
  using Kind = Header::Kind;
  const auto heard = [](Header header, const std::string& text) {
    World world = reserve_world(2);
    std::string error;
    std::thread rank0([&] {
      try {
        ProcessGroup group(world, 10);
        group.all_gather(bytes_of("four"), 4);
      } catch (const Error& caught) {
        error = caught.what();
      }
    });
    const Socket socket = call("127.0.0.1", world.port, time_for(5, 0), "", {1, 2, kNoCommunicator, 0});
    const Header barrier{Kind::part, 0, 0};
    for (const Header& one : {barrier, header}) send_all(socket, std::as_bytes(std::span(&one, 1)), time_for(5, 0));
    send_all(socket, bytes_of(text), time_for(5, 0));
    rank0.join();
    return error;
  };
  CHECK(heard({Kind::part, 0, std::uint64_t{8} << 30}, "") ==
        "rank 1 announced 8589934592 bytes where at most 4096 were expected");
  CHECK(heard({Kind::part, 0, 5}, "short") == "rank 1 gave 5 bytes where at most 4 were expected");
  CHECK(heard({Kind::offer, 0, 8}, std::string(8, '\1')) ==
        "rank 1 gave 72340172838076673 bytes where at most 4 were expected");
  CHECK(heard({Kind::result, 0, 0}, "") == "rank 1 said something that nobody asked for");
  CHECK(heard({Kind::failure, 0, 9}, "a\x1b[2J\nbc\x7f") == "rank 1: a\\x1b[2J\\nbc\\x7f");
}

TEST_CASE("processes that do not fit together are refused") {
  SECTION("one does not come") {
    const std::vector<std::string> errors = as_processes(3, 2, [](ProcessGroup&) {}, {0, 2});
    CHECK_THAT(errors[0], Catch::Contains("rank 0 waited 2 s at 127.0.0.1:") && Catch::Contains(" for rank 1"));
    CHECK_THAT(errors[2], Catch::Contains("waited 2 s"));
  }
  SECTION("and is said to be missing meanwhile") {
    World world = reserve_world(3);
    world.token = "the token";
    std::vector<std::string> said;
    std::thread stranger([&] {
      try {
        call("127.0.0.1", world.port, time_for(1, 0), "another", {1, 3, 0, 0});
      } catch (const WrongToken&) {
      }
    });
    CHECK_THROWS_WITH(
        ProcessGroup(world, 1, [&](const std::string& line) { said.push_back(line); }),
        Catch::Contains("for ranks 1, 2; 1 connection was refused, the last from 127.0.0.1 without this job"));
    stranger.join();
    REQUIRE(!said.empty());
    CHECK_THAT(said[0], Catch::StartsWith("rank 0 waits at 127.0.0.1:") && Catch::Contains(" for ranks 1, 2"));
  }
  SECTION("nobody listens") {
    World world = reserve_world(2);
    Socket(world.listening).close();
    world.rank = 1;
    CHECK_THROWS_WITH(ProcessGroup(world, 0.3),
                      Catch::Contains("rank 1 did not reach rank 0 within 0.3 s") && Catch::Contains("refused"));
  }
  SECTION("two have one rank, after a stranger") {
    const World first = reserve_world(3);
    World other = first;
    other.rank = 2;
    other.listening = -1;
    std::string error;
    std::thread rank0([&] {
      try {
        ProcessGroup group(first, 10);
      } catch (const Error& caught) {
        error = caught.what();
      }
    });
    const Socket stranger = connect_to("127.0.0.1", first.port, Clock::now() + std::chrono::seconds(5));
    const std::string text = "GET / HTTP/1.1\r\n\r\n";
    send_all(stranger, bytes_of(text), time_for(1, 0));
    std::string errors[2];  // checked on this thread, because Catch supports only one
    const auto joins = [&](std::string& theirs) {
      try {
        ProcessGroup group(other, 10);
      } catch (const Error& caught) {
        theirs = caught.what();
      }
    };
    std::thread twin([&] { joins(errors[1]); });
    joins(errors[0]);
    twin.join();
    for (const std::string& theirs : errors) CHECK(theirs == "rank 0: two processes say that they are rank 2");
    rank0.join();
    CHECK(error == "two processes say that they are rank 2");
  }
  SECTION("another number of processes") {
    const World first = reserve_world(3);
    std::string error;
    std::thread rank0([&] {
      try {
        ProcessGroup group(first, 10);
      } catch (const Error& caught) {
        error = caught.what();
      }
    });
    World other = first;
    other.rank = 1;
    other.size = 2;
    other.listening = -1;
    CHECK_THROWS_WITH(ProcessGroup(other, 10), "rank 1 was started as one of 2 processes, rank 0 as one of 3");
    rank0.join();
    CHECK(error == "rank 1 was started as one of 2 processes, rank 0 as one of 3");
  }
}

}  // namespace stretto::launch
