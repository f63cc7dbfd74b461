#include "base/error.hpp"

#include <catch2/catch.hpp>

using stretto::nearest_spelling;

TEST_CASE("nearest_spelling finds the closest candidate", "[error]") {
  const std::vector<std::string> keys = {"hidden_size", "num_layers", "seq_length", "lr", "min_lr"};
  CHECK(nearest_spelling("hiden_size", keys) == "hidden_size");
  CHECK(nearest_spelling("hidden-size", keys) == "hidden_size");
  CHECK(nearest_spelling("n_layers", keys) == "num_layers");
  CHECK(nearest_spelling("seq_length", keys) == "seq_length");
  CHECK(nearest_spelling("l", keys) == "lr");
  CHECK(nearest_spelling("rl", keys) == "lr");  // a swap counts once
  CHECK(nearest_spelling("modle", {"model", "mode"}) == "model");
  CHECK(nearest_spelling("h100", {"a100-80gb", "h100-sxm", "h100-pcie"}) == "h100-sxm");  // a prefix counts as near
}

TEST_CASE("nearest_spelling gives nothing for a different word", "[error]") {
  CHECK(nearest_spelling("colour", {"hidden_size", "lr"}).empty());
  CHECK(nearest_spelling("", {"lr"}).empty());
  CHECK(nearest_spelling("lr", {}).empty());
  CHECK(nearest_spelling(std::string(1 << 20, 'a'), {"lr", "seq_length"}).empty());
}

TEST_CASE("a distance of exactly a third of the length is still a misspelling", "[error]") {
  CHECK(nearest_spelling("abcdef", {"abcdxy"}) == "abcdxy");  // 2 of 6
  CHECK(nearest_spelling("abcde", {"abcxy"}).empty());        // 2 of 5: limit 1
  CHECK(nearest_spelling("abcdef", {"abcdxy", "abcdex"}) == "abcdex");
}

TEST_CASE("errors carry the exit code of their kind", "[error]") {
  CHECK(stretto::input_error("x").exit_code() == 2);
  CHECK(stretto::runtime_failure("x").exit_code() == 1);
}
