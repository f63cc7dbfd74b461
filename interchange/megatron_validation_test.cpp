#include <catch2/catch.hpp>
#include <map>

#include "interchange/command_line.hpp"
#include "interchange/megatron.hpp"
#include "tests/cases.hpp"
#include "tests/random_layout.hpp"

using namespace stretto;

namespace {

// Megatron-LM's checks of a command line as rules: the assertions of validate_args() in megatron/training/arguments.py
// at d98e8a64 (August 2026) on flags that the export writes.
class Arguments {
 public:
  explicit Arguments(const CommandLine& line) : line_(line) {
    for (const Flag& flag : line.flags) flags_[flag.name] = flag.values.empty() ? "" : flag.values.front();
  }
  bool has(const std::string& flag) const { return flags_.contains(flag); }
  std::string word(const std::string& flag, const std::string& otherwise = "") const {
    return has(flag) ? flags_.at(flag) : otherwise;
  }
  double number(const std::string& flag, double otherwise) const {
    return has(flag) ? std::stod(flags_.at(flag)) : otherwise;
  }
  std::int64_t count(const std::string& flag, std::int64_t otherwise = 1) const {
    return has(flag) ? std::stoll(flags_.at(flag)) : otherwise;
  }
  std::int64_t tp() const { return count("--tensor-model-parallel-size"); }
  std::int64_t pp() const { return count("--pipeline-model-parallel-size"); }
  std::int64_t cp() const { return count("--context-parallel-size"); }
  std::int64_t world() const { return line_.processes.value_or(1) * line_.nodes.value_or(1); }
  std::string connections() const {
    return line_.exports.contains("CUDA_DEVICE_MAX_CONNECTIONS") ? line_.exports.at("CUDA_DEVICE_MAX_CONNECTIONS") : "";
  }
  bool is_fsdp() const { return has("--use-megatron-fsdp"); }
  bool is_interleaved() const {
    return count("--num-virtual-stages-per-pipeline-rank") > 1 ||
           (has("--pipeline-model-parallel-layout") &&
            std::int64_t(parse_layout(word("--pipeline-model-parallel-layout")).size()) > pp());
  }

 private:
  const CommandLine& line_;
  std::map<std::string, std::string> flags_;
};

struct Rule {
  int line;  // line of arguments.py
  const char* says;
  bool (*holds)(const Arguments&);
};
using A = const Arguments&;
const Rule kRules[] = {
    {432, "the world divides by tp x pp x cp", [](A a) { return a.world() % (a.tp() * a.pp() * a.cp()) == 0; }},
    {584, "a2a+p2p has hierarchical sizes",
     [](A a) { return a.word("--cp-comm-type") != "a2a+p2p" || a.has("--hierarchical-context-parallel-sizes"); }},
    {693, "there is a micro-batch", [](A a) { return a.count("--micro-batch-size", 0) > 0; }},
    {927, "virtual stages are given once",
     [](A a) {
       return !(a.has("--num-virtual-stages-per-pipeline-rank") && a.has("--pipeline-model-parallel-layout"));
     }},
    {945, "a layout divides by pp",
     [](A a) {
       return !a.has("--pipeline-model-parallel-layout") ||
              std::int64_t(parse_layout(a.word("--pipeline-model-parallel-layout")).size()) % a.pp() == 0;
     }},
    {1002, "interleaving needs stages", [](A a) { return !a.is_interleaved() || a.pp() > 1; }},
    {1025, "gathers during compute need the distributed optimizer",
     [](A a) { return !a.has("--overlap-param-gather") || a.has("--use-distributed-optimizer") || a.is_fsdp(); }},
    {1028, "gathers during compute need reductions during it",
     [](A a) { return !a.has("--overlap-param-gather") || a.has("--overlap-grad-reduce"); }},
    {1067, "gathers with the step need the distributed optimizer",
     [](A a) { return !a.has("--overlap-param-gather-with-optimizer-step") || a.has("--use-distributed-optimizer"); }},
    {1069, "gathers with the step need gathers during compute",
     [](A a) { return !a.has("--overlap-param-gather-with-optimizer-step") || a.has("--overlap-param-gather"); }},
    {1071, "gathers with the step need virtual stages",
     [](A a) { return !a.has("--overlap-param-gather-with-optimizer-step") || a.is_interleaved(); }},
    {1073, "gathers with the step need plain checkpoints",
     [](A a) { return !a.has("--overlap-param-gather-with-optimizer-step") || a.word("--ckpt-format") == "torch"; }},
    {1169, "FSDP has its own checkpoints",
     [](A a) { return !a.is_fsdp() || a.word("--ckpt-format") == "fsdp_dtensor"; }},
    {1332, "heads divide the width",
     [](A a) { return a.count("--hidden-size") % a.count("--num-attention-heads") == 0; }},
    {1336, "2 x cp divides a sequence", [](A a) { return a.cp() == 1 || a.count("--seq-length") % (2 * a.cp()) == 0; }},
    {1354, "positions for a whole sequence",
     [](A a) { return a.count("--max-position-embeddings") >= a.count("--seq-length"); }},
    {1360, "min-lr is at most lr", [](A a) { return a.number("--min-lr", 0) <= a.number("--lr", 0); }},
    {1426, "selective recomputation has no method",
     [](A a) { return a.word("--recompute-granularity") != "selective" || !a.has("--recompute-method"); }},
    {1442, "tp overlap needs sequence parallelism",
     [](A a) { return !a.has("--tp-comm-overlap") || (a.has("--sequence-parallel") && a.tp() > 1); }},
    {1477, "tp and cp have one connection",
     [](A a) { return (a.tp() == 1 && a.cp() == 1) || a.is_fsdp() || !a.connections().empty(); }},
    {1676, "checkpoints of FSDP need FSDP",
     [](A a) { return a.word("--ckpt-format") != "fsdp_dtensor" || a.is_fsdp(); }},
    // The rest is in model_parallel_config.py.
    {545, "a deferred head needs stages", [](A a) { return !a.has("--defer-embedding-wgrad-compute") || a.pp() > 1; }},
};

}  // namespace

TEST_CASE("exported command lines pass Megatron-LM's own checks", "[megatron]") {
  for (int i = 0; i < testing::share_of(300); ++i) {
    const Scenario scenario = testing::random_layout(1000 + static_cast<std::uint64_t>(i)).scenario;
    if (is_zero_bubble(scenario.parallel.pipeline_schedule)) continue;
    const Translation out = to_megatron(scenario);
    const CommandLine line = command_line_of(out.text, "run.sh", {});
    const Arguments arguments(line);
    INFO(out.text);
    for (const Rule& rule : kRules) {
      INFO("arguments.py:" << rule.line << ": " << rule.says);
      CHECK(rule.holds(arguments));
    }
    // The export leaves flags out where it relies on these defaults (arguments.py:2441, transformer_config.py:188).
    CHECK((arguments.has("--make-vocab-size-divisible-by") && arguments.has("--hidden-dropout")));
  }
}
