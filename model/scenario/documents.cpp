#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

// Sets the global batch to the sequences that global_batch_documents fill: the nearest multiple of what all replicas
// compute at once, and not below it.
void set_batch(const TomlTable& table, const Parallel& parallel, Training& training) {
  if (!training.packed_sequences.any())
    throw table.failure("global_batch_documents",
                        "expected reset_attention_mask = true and mean_document_tokens or document_lengths_file with "
                        "it, got none");
  const std::int64_t at_once = training.micro_batch_size * parallel.data_parallel_size;
  const double sequences = double(training.global_batch_documents) / training.packed_sequences.documents;
  const double rounds = std::max(1.0, std::round(sequences / double(at_once)));
  if (rounds * double(at_once) > double(kMaxGlobalBatch))
    throw table.failure("global_batch_documents",
                        "expected documents of at most " + number(kMaxGlobalBatch) + " sequences, got more");
  training.global_batch_size = std::int64_t(rounds) * at_once;
}

}  // namespace

void read_documents(
    const TomlTable& table, const std::filesystem::path& folder, Scenario& scenario,
    const std::function<const Documents&(const std::string&, const std::function<Documents()>&)>& known) {
  Training& training = scenario.training;
  DocumentLengths& lengths = training.document_lengths;
  const bool is_measured = lengths.kind == DocumentLengths::Kind::measured;
  if (is_measured == lengths.file.empty())
    throw table.failure(is_measured ? "document_lengths" : "document_lengths_file",
                        "expected document_lengths = \"measured\" and a document_lengths_file, got one of them");
  if (is_measured && training.mean_document_tokens > 0)
    throw table.failure("mean_document_tokens", "expected none with document_lengths_file, whose mean it is, got one");
  if (is_measured) lengths.file = (folder / lengths.file).lexically_normal().string();
  if (training.reset_attention_mask && (is_measured || training.mean_document_tokens > 0)) {
    const double mean = std::max(1.0, training.mean_document_tokens);
    const std::int64_t seq = scenario.model.seq_length;
    std::string name = lengths.file;
    for (const std::string& part : {std::string(name_of(lengths.kind)), std::string(name_of(lengths.packing)),
                                    std::to_string(mean), std::to_string(seq)})
      name += "\n" + part;
    const Documents& documents = known(name, [&] {
      Documents read{lengths, {}};
      if (is_measured) read_measured(read.lengths);
      read.packed = packed_sequences(read.lengths, mean, seq);
      return read;
    });
    training.packed_sequences = documents.packed;
  }
  if (training.global_batch_documents > 0) set_batch(table, scenario.parallel, training);
}

double Scenario::document_tokens_on_average() const {
  if (!training.reset_attention_mask) return 0;
  const PackedSequences& packed = training.packed_sequences;
  return packed.any() ? geometric_mean_of(packed.pairs, model.seq_length) : training.mean_document_tokens;
}

double Scenario::document_tokens_of_slowest() const {
  if (!training.reset_attention_mask) return 0;
  const PackedSequences& packed = training.packed_sequences;
  if (!packed.any()) return training.mean_document_tokens;
  const std::int64_t replicas = parallel.data_parallel_size;
  const std::int64_t sequences = training.sequences_of_replica > 0
                                     ? training.sequences_of_replica
                                     : std::max<std::int64_t>(1, training.global_batch_size / replicas);
  const double most = slowest_replica(packed, replicas, sequences);
  return geometric_mean_of(packed.pairs * most, model.seq_length);
}

}  // namespace stretto
