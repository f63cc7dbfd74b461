#include "model/document_lengths.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/rng.hpp"
#include "model/scenario.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::testing {
namespace {

using Catch::Contains;
using Kind = DocumentLengths::Kind;
using Packing = DocumentLengths::Packing;

DocumentLengths lengths_of(Kind kind, Packing packing = Packing::chunk, std::vector<std::int64_t> measured = {}) {
  return {kind, packing, "", std::move(measured)};
}

}  // namespace

TEST_CASE("sequences of documents have the pairs that counting gives") {
  // Four documents fill a sequence.
  const PackedSequences whole = packed_sequences(lengths_of(Kind::equal, Packing::first_fit), 64, 256);
  CHECK(whole.pairs == Approx(4 * 64 * 65 / 2));
  CHECK(whole.documents == Approx(4));
  CHECK(whole.filled == 1);
  CHECK(whole.deviation == Approx(0).margin(1e-9));
  // Documents that do not fit twice leave the rest as padding.
  const PackedSequences padded = packed_sequences(lengths_of(Kind::equal, Packing::first_fit), 160, 256);
  CHECK(padded.filled == Approx(160.0 / 256));
  CHECK(padded.pairs == Approx(160 * 161 / 2));
  // A longer document is cut to one sequence; chunks of it are cut at every sequence's end.
  CHECK(packed_sequences(lengths_of(Kind::equal, Packing::first_fit), 1000, 256).pairs == Approx(256 * 257 / 2));
  CHECK(packed_sequences(lengths_of(Kind::equal), 1e9, 256).pairs == Approx(256.0 * 257 / 2).epsilon(1e-3));
  // A file of equal lengths has the result of their name.
  const PackedSequences measured = packed_sequences(lengths_of(Kind::measured, Packing::chunk, {100, 100}), 1, 256),
                        equal = packed_sequences(lengths_of(Kind::equal), 100, 256);
  CHECK(measured.pairs == equal.pairs);
  CHECK(measured.documents == equal.documents);
  // The mean over all places at which a document can begin is counted.
  std::int64_t counted = 0;
  for (std::int64_t first = 0; first < 100; ++first)
    for (std::int64_t at = -first, left = 256; left > 0; at += 100) {
      const std::int64_t from = std::max<std::int64_t>(at, 0), tokens = std::min<std::int64_t>(at + 100, 256) - from;
      counted += tokens * (tokens + 1) / 2;
      left = 256 - (at + 100);
    }
  CHECK(equal.pairs == Approx(double(counted) / 100));
}

TEST_CASE("geometric documents have one mean whichever way it is computed") {
  for (const double mean : {3.0, 7.0, 60.0, 900.0, 1e6})
    for (const std::int64_t seq : {1, 48, 1024}) {
      CAPTURE(mean, seq);
      const PackedSequences packed = packed_sequences(lengths_of(Kind::geometric), mean, seq);
      if (mean < 4.0 * double(seq) && seq > 1)
        CHECK(geometric_mean_of(packed.pairs, seq) == Approx(mean).epsilon(1e-3));
      // A file of such lengths says the same, to the error of its draws.
      std::vector<std::int64_t> drawn;
      for (std::uint64_t i = 0; i < 40000; ++i) {
        std::int64_t length = 1;
        if (mean > 1) length = 1 + std::int64_t(std::log1p(-uniform(9, 9, i)) / std::log1p(-1 / mean));
        drawn.push_back(length);
      }
      const PackedSequences of_file = packed_sequences(lengths_of(Kind::measured, Packing::chunk, drawn), 1, seq);
      CHECK(of_file.pairs == Approx(packed.pairs).epsilon(0.03));
      CHECK(of_file.deviation == Approx(packed.deviation).margin(0.05));
    }
}

TEST_CASE("the slowest of several replicas is the one that draws give") {
  const DocumentLengths lengths =
      lengths_of(Kind::measured, Packing::first_fit, {40, 90, 130, 200, 310, 500, 800, 1300, 2100, 4000});
  const PackedSequences packed = packed_sequences(lengths, 1, 4096);
  for (const auto& [replicas, sequences] : {std::pair<std::int64_t, std::int64_t>{2, 4}, {16, 1}, {16, 8}, {128, 4}}) {
    CAPTURE(replicas, sequences);
    CHECK(slowest_replica(packed, replicas, sequences) >= slowest_replica(packed, replicas / 2, sequences));
    CHECK(slowest_replica(packed, replicas, sequences) >= slowest_replica(packed, replicas, 2 * sequences));
    CHECK(slowest_replica(packed, replicas, sequences) <= packed.most);
    CHECK(slowest_replica(packed, replicas + 1, sequences) <= 1.2 * slowest_replica(packed, replicas, sequences));
  }
  CHECK(slowest_replica(packed, 1, 4) == 1);
  // Draws of chunks: each replica's sum of pairs, the largest over the mean.
  const PackedSequences chunks = packed_sequences(lengths_of(Kind::geometric), 400, 4096);
  double largest = 0;
  constexpr int kSteps = 300, kReplicas = 16;
  std::uint64_t draw = 0;
  for (int step = 0; step < kSteps; ++step) {
    double most = 0;
    for (int replica = 0; replica < kReplicas; ++replica) {
      double pairs = 0;
      for (int sequence = 0; sequence < 2; ++sequence)
        for (double left = 4096; left > 0;) {
          const double length =
              std::min(left, 1 + std::floor(std::log1p(-uniform(3, 1, draw++)) / std::log1p(-1 / 400.0)));
          pairs += length * (length + 1) / 2;
          left -= length;
        }
      most = std::max(most, pairs);
    }
    largest += most / 2 / chunks.pairs / kSteps;
  }
  CHECK(slowest_replica(chunks, kReplicas, 2) == Approx(largest).epsilon(0.05));
}

TEST_CASE("a scenario reads lengths of documents, and counts its batch in them") {
  const TempDir folder;
  const std::string file = folder.write("lengths.txt", std::string("# tokens\n512\n1024 # two\n\n 256\r\n"));
  const std::string text =
      "[model]\npreset = \"gpt2-124m\"\nseq_length = 1024\nmax_position_embeddings = 1024\n[parallel]\n"
      "data_parallel_size = 4\n[training]\nreset_attention_mask = true\neod_token = 0\ndocument_lengths = "
      "\"measured\"\n"
      "document_lengths_file = \"" +
      file + "\"\n";
  const Scenario scenario = parse_scenario(text, "s.toml", {"training.global_batch_documents=1000"});
  CHECK(scenario.training.packed_sequences.documents == Approx(1024 / ((512 + 1024 + 256) / 3.0)));
  CHECK(scenario.training.global_batch_size == 584);  // 583.3 sequences, in fours
  CHECK(scenario.document_tokens_on_average() > 100);
  CHECK(scenario.document_tokens_of_slowest() > scenario.document_tokens_on_average());
  CHECK(parse_scenario(text, "s.toml", {"training.reset_attention_mask=false"}).document_tokens_of_slowest() == 0);
  const auto message = [&](const std::string& line) {
    folder.write("lengths.txt", "12\n" + line);
    return message_of([&] { parse_scenario(text, "s.toml"); });
  };
  for (const char* line : {"0", "-4", "1.5", "many", "1000000001", "5 6"}) {
    CAPTURE(line);
    CHECK_THAT(message(line),
               Contains("lengths.txt:2: expected the tokens of one document, from 1 to 1000000000, got \"" +
                        std::string(line) + "\""));
  }
  CHECK(message("") == "no error");
  folder.write("lengths.txt", std::string("#\n"));
  CHECK_THAT(message_of([&] { parse_scenario(text, "s.toml"); }), Contains("expected a line with the tokens"));
  CHECK_THAT(message_of([&] { parse_scenario(text, "s.toml", {"training.mean_document_tokens=4"}); }),
             Contains("mean_document_tokens: expected none with document_lengths_file"));
  CHECK_THAT(message_of([&] { parse_scenario(text, "s.toml", {"training.document_lengths=equal"}); }),
             Contains("expected document_lengths = \"measured\" and a document_lengths_file, got one of them"));
  CHECK_THAT(message_of([&] {
               parse_scenario("[model]\npreset = \"gpt2-124m\"\n[training]\nglobal_batch_documents = 4\n", "s.toml");
             }),
             Contains("global_batch_documents: expected reset_attention_mask = true"));
}

}  // namespace stretto::testing
