#include "validate/published_scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "sim/accelerator/numbers.hpp"

namespace stretto::validate {
namespace {

// A group of FSDP's HYBRID_SHARD is a node with this many GPUs.
constexpr std::int64_t kGpusOfNode = 8;

std::int64_t at_least_1(std::int64_t count) { return std::max<std::int64_t>(1, count); }

class Writer {
 public:
  Writer(const PublishedRun& run, std::vector<std::string>& assumptions) : r_(run), assumptions_(assumptions) {
    // Samples for fine-tuning are documents, packed to seq_len, that do not attend to each other. In the scenario each
    // is a sequence of its own.
    const std::int64_t tokens = run.document_tokens;
    if (tokens <= 0 || tokens >= run.seq_len) return;
    if (run.seq_len % tokens != 0 || run.task == "pretrain") {
      apart_ = tokens;
      assume(fmt::format("documents of {} tokens", tokens));
      return;
    }
    documents_ = run.seq_len / tokens;
    assume(fmt::format("packed documents of {} tokens", tokens));
  }

  std::string text() {
    out_ = fmt::format("name = {}\nplatform = \"{}\"\nprofile = \"{}\"\n", sim::toml_string(r_.id), r_.platform,
                       r_.profile);
    begin("model");
    write_model();
    begin("parallel");
    write_layout();
    begin("overlap");
    begin("training");
    write_training();
    return out_;
  }

 private:
  void begin(const char* section) {
    out_ += fmt::format("[{}]\n", section);
    stated_.clear();
    for (const auto* said : {&r_.columns, &r_.habits})
      if (const auto keys = said->find(section); keys != said->end()) write(keys->second);
  }
  // Writes lines "KEY = VALUE" but those whose key the section has already.
  void write(std::string_view lines) {
    while (!lines.empty()) {
      const std::size_t end = std::min(lines.find('\n'), lines.size() - 1);
      const std::string_view line = lines.substr(0, end + 1);
      const std::size_t equals = line.find(" = ");
      if (equals == std::string_view::npos || stated_.insert(std::string(line.substr(0, equals))).second) out_ += line;
      lines.remove_prefix(end + 1);
    }
    if (!out_.ends_with('\n')) out_ += '\n';
  }
  void assume(const std::string& what) { assumptions_.push_back(what); }
  void set(const char* key, std::int64_t value) { write(fmt::format("{} = {}\n", key, value)); }

  void write_model() {
    set("num_layers", r_.layers);
    set("hidden_size", r_.hidden);
    set("num_attention_heads", r_.heads);
    set("seq_length", r_.seq_len / documents_);
    // Frameworks repeat heads of keys and values where there are fewer than ranks (Megatron-LM's
    // num_query_groups < tensor_model_parallel_size).
    if (r_.kv_heads > 0 && r_.tp > r_.kv_heads && r_.tp % r_.kv_heads == 0 && r_.heads % r_.tp == 0) {
      set("num_query_groups", r_.tp);
      assume(fmt::format("the {} heads of keys and values repeated on {} ranks", r_.kv_heads, r_.tp));
    } else if (r_.kv_heads > 0 && r_.kv_heads != r_.heads) {
      set("num_query_groups", r_.kv_heads);
    }
    if (r_.kv_heads == 0 && !r_.model.is_multi_head) assume("as many heads of keys and values as of queries");
    if (r_.sizes_by_name) assume("sizes of " + r_.model_name + " as its repository has them");
    if (r_.vocab == 0 && r_.framework.cuts_vocabulary) {
      const std::int64_t tp = at_least_1(r_.tp);
      set("vocab_size", r_.model.vocab_size / tp * tp);
      set("make_vocab_size_divisible_by", 1);
      assume(r_.model.said + ", not padded, cut by floor division");
    } else {
      set("vocab_size", r_.vocab > 0 ? r_.vocab : r_.model.vocab_size);
      // FSDP does not pad the vocabulary, and the rows' sizes are multiples of 64.
      set("make_vocab_size_divisible_by", r_.vocab > 0 && r_.framework.shards ? 1 : 128);
      if (r_.vocab == 0) assume(r_.model.said);
    }
    if (r_.moe_layers > 0 && r_.moe_layers < r_.layers) {
      std::string has;
      for (std::int64_t layer = 0; layer < r_.layers; ++layer)
        has += fmt::format("{}{}", layer > 0 ? ", " : "", layer >= r_.layers - r_.moe_layers ? 1 : 0);
      write(fmt::format("moe_layer_freq = [{}]\n", has));
    }
    write(r_.model.keys);
  }

  void write_layout() {
    const std::int64_t dp = r_.gpus / r_.ranks_of_model();
    set("data_parallel_size", dp);
    set("tensor_model_parallel_size", at_least_1(r_.tp));
    set("pipeline_model_parallel_size", at_least_1(r_.pp));
    if (r_.cp > 1) set("context_parallel_size", r_.cp);
    if (r_.chunks > 1 && r_.pp > 1) set("virtual_pipeline_model_parallel_size", r_.chunks);
    if (r_.chunks == 0 && r_.pp > 1 && !stated_.contains("virtual_pipeline_model_parallel_size"))
      assume("one model chunk a stage");
    // Models of 126 layers and similar ones: embedding and head count as a layer each (arXiv 2407.21783, 3.3.2).
    const std::int64_t pieces = at_least_1(r_.pp) * at_least_1(r_.chunks);
    if (r_.pp > 1 && r_.layers % pieces != 0 && (r_.layers + 2) % pieces == 0) {
      write("account_for_embedding_in_pipeline_split = true\naccount_for_loss_in_pipeline_split = true\n");
      assume("embedding and head counted as layers");
    } else if (r_.pp > 1 && r_.layers % pieces != 0 && r_.layers > pieces) {
      write_uneven_chunks(pieces);
    }
    if (r_.has_experts) write_ranks_of_experts();
    if (r_.sequence_parallel) write("sequence_parallel = true\n");
    if (r_.hybrid_shard && dp > kGpusOfNode) set("num_distributed_optimizer_instances", dp / kGpusOfNode);
  }

  // All model chunks have as many layers but the last, and where that would leave it less than none the first, as
  // Megatron-Bridge's recipes of DeepSeek-V3 cut 61 layers (recipes/deepseek/h100/deepseek_v3.py).
  void write_uneven_chunks(std::int64_t pieces) {
    const std::int64_t each = (r_.layers + pieces - 1) / pieces,
                       first = r_.layers > each * (pieces - 1) ? each : each - 1;
    const std::int64_t last = r_.layers - first - each * (pieces - 2);
    if (last < 0) return;
    const auto layers = [](std::int64_t count) { return std::string(static_cast<std::size_t>(count), 't'); };
    write(fmt::format("pipeline_model_parallel_layout = \"E{}|({}|)*{}{}L\"\n", layers(first), layers(each), pieces - 2,
                      layers(last)));
    assume("the last model chunk has fewest layers");
  }

  void write_ranks_of_experts() {
    if (r_.ep > 1) set("expert_model_parallel_size", r_.ep);
    const auto columns = r_.columns.find("parallel");
    const bool says_tp =
        columns != r_.columns.end() && columns->second.find("expert_tensor_parallel_size") != std::string::npos;
    if (r_.ep > 1 && !says_tp) {
      set("expert_tensor_parallel_size", 1);
      if (r_.tp > 1) assume("expert_tensor_parallel_size 1");
    }
    if (r_.ep > 1 && !r_.dispatcher.empty())
      write(fmt::format("moe_token_dispatcher_type = \"flex\"\nmoe_flex_dispatcher_backend = \"{}\"\n", r_.dispatcher));
    if (r_.tp > 1 && !r_.sequence_parallel) write("sequence_parallel = true\n");
  }

  void write_training() {
    set("micro_batch_size", at_least_1(r_.mbs) * documents_);
    set("global_batch_size", r_.gbs * documents_);
    if (r_.mbs == 0) assume("micro_batch_size 1");
    if (r_.task == "lora") {
      write("frozen_base = true\n");
      assume("adapters not counted");
    }
    const std::string& what = r_.recompute;
    if (what.empty() && !stated_.contains("recompute_granularity")) assume("no recomputation");
    if (what == "full") write("recompute_granularity = \"full\"\n");
    if (apart_ > 0)
      write(fmt::format("reset_attention_mask = true\nmean_document_tokens = {}\ndocument_lengths = \"equal\"\n",
                        apart_));
    if (what == "selective") write("recompute_granularity = \"selective\"\n");
    if (!r_.recompute_modules.empty())
      write(fmt::format("recompute_modules = [\"{}\"]\n", fmt::join(r_.recompute_modules, "\", \"")));
    if (what == "op") write("recompute_granularity = \"selective_op\"\n");
    if (what == "layer") {
      write("recompute_granularity = \"full\"\nrecompute_method = \"block\"\n");
      set("recompute_num_layers", at_least_1(r_.layers / 2));
    }
  }

  const PublishedRun& r_;
  std::vector<std::string>& assumptions_;
  std::int64_t documents_ = 1;    // documents of a sequence that become sequences
  std::int64_t apart_ = 0;        // tokens of documents that stay in one sequence; 0: none
  std::set<std::string> stated_;  // keys of the section, as columns, habits and the model's name have them
  std::string out_;
};

}  // namespace

std::int64_t PublishedRun::ranks_of_model() const { return at_least_1(tp) * at_least_1(pp) * at_least_1(cp); }

std::string scenario_text(const PublishedRun& run, std::vector<std::string>& assumptions) {
  return Writer(run, assumptions).text();
}

}  // namespace stretto::validate
