#include "sim/network/child.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <stdexcept>

#include "base/error.hpp"

namespace stretto::sim {

TEST_CASE("a child process returns its bytes, more than a pipe holds", "[sim]") {
  int touched = 0;
  const std::string bytes = run_in_child([&] {
    touched = 1;
    return std::string(3'000'000, 'x') + std::string(1, '\0') + "end";
  });
  CHECK(bytes.size() == 3'000'004);
  CHECK(bytes.substr(3'000'001) == "end");
  CHECK(touched == 0);
  CHECK(run_in_child([] { return std::string(); }).empty());
}

TEST_CASE("what the parent has buffered is written once, also when the child flushes it", "[sim]") {
  std::FILE* file = std::tmpfile();
  std::fputs("step", file);
  run_in_child([&] {
    std::fflush(file);
    return std::string();
  });
  std::fflush(file);
  std::fseek(file, 0, SEEK_END);
  CHECK(std::ftell(file) == 4);
  std::fclose(file);
}

TEST_CASE("a child's failures reach the parent", "[sim]") {
  const auto kind_of_failure = [](const std::function<std::string()>& work) {
    try {
      run_in_child(work);
    } catch (const Error& error) {
      return std::pair(error.kind(), std::string(error.what()));
    }
    FAIL("no error");
    return std::pair(ErrorKind::runtime, std::string());
  };
  CHECK(kind_of_failure([]() -> std::string { throw input_error("bad input"); }) ==
        std::pair(ErrorKind::input, std::string("bad input")));
  CHECK(kind_of_failure([]() -> std::string { throw runtime_failure("bad luck"); }) ==
        std::pair(ErrorKind::runtime, std::string("bad luck")));
  CHECK(kind_of_failure([]() -> std::string { throw std::out_of_range("too far"); }).second == "simgrid: too far");
  const auto killed = kind_of_failure([]() -> std::string {
    std::raise(SIGKILL);
    return "never";
  });
  CHECK(killed.first == ErrorKind::runtime);
  CHECK(killed.second.find("signal 9") != std::string::npos);
}

}  // namespace stretto::sim
