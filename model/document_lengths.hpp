#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

// How long the documents of a batch are, and how sequences hold them. A prediction needs both: attention costs the
// pairs of tokens of one document, and replicas whose sequences hold longer documents finish last.
struct DocumentLengths {
  enum class Kind : std::uint8_t {
    geometric,  // every token ends its document with one probability, 1 / mean
    equal,      // every document has the mean's tokens
    measured,   // lengths of `file`
  };
  enum class Packing : std::uint8_t {
    chunk,      // documents follow one another, and a sequence's end cuts the document there (pretraining)
    first_fit,  // whole documents in the first sequence that has room, in random order; a document that is longer than
                // a sequence is cut to one; the rest of a sequence is padding (first_fit_shuffle of NVIDIA-NeMo's
                // prepare_packed_sequence, its default)
  };
  Kind kind = Kind::geometric;
  Packing packing = Packing::chunk;
  std::string file = {};                    // tokens of one document a line, with `#` before comments
  std::vector<std::int64_t> measured = {};  // the numbers of `file`, in order
  bool operator==(const DocumentLengths&) const = default;
};
const char* name_of(DocumentLengths::Kind kind);        // "geometric", …
const char* name_of(DocumentLengths::Packing packing);  // "chunk", …

// Sequences that hold documents, as a distribution. Pairs are those (query, key) of one document, key at or before
// query, in one sequence.
struct PackedSequences {
  double documents = 0;  // documents of a sequence, on average; those that a sequence's end cuts count in part
  double filled = 1;     // tokens of documents over all tokens
  double pairs = 0;      // of a sequence, on average; 0: nothing is known of its documents
  double deviation = 0;  // relative standard deviation of a sequence's pairs
  double skewness = 0;   // of a sequence's pairs
  double most = 1;       // pairs of the fullest sequence that was drawn, over the mean
  bool any() const { return pairs > 0; }
};

// Returns the sequences of `seq` tokens that documents of these lengths fill; `mean` is their mean length where they
// are not measured, at least 1. The mean is exact for `chunk` (documents begin anywhere in a sequence); spread and
// padding are those of a fixed number of draws, equal in every run.
PackedSequences packed_sequences(const DocumentLengths& lengths, double mean, std::int64_t seq);

// Returns the pairs of the replica that has most, over the mean, in expectation: each of `replicas` computes
// `sequences` of them in a step. Grows with replicas, falls with sequences, at least 1.
double slowest_replica(const PackedSequences& packed, std::int64_t replicas, std::int64_t sequences);

// Returns the mean length of geometric documents that have `pairs` in a sequence of `seq` tokens (AttentionPairs::count
// in model/ops/attention.hpp).
double geometric_mean_of(double pairs, std::int64_t seq);

// Reads lengths.file, a path. Throws Error(input) with file and line for a line that is no number from 1 to 10^9, and
// for a file without one.
void read_measured(DocumentLengths& lengths);

}  // namespace stretto
