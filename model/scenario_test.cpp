#include "model/scenario.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "model/scenario/not_modelled.hpp"
#include "tests/temp_dir.hpp"

using namespace stretto;

namespace {

const std::string kTiny =
    "[model]\nnum_layers = 2\nhidden_size = 64\nnum_attention_heads = 4\nseq_length = 32\nvocab_size = 250\n";

std::string message_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_scenario(text, "s.toml", overrides);
  } catch (const Error& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "";
}

std::string override_message(const std::string& one) { return message_of(kTiny, {one}); }

// The first ```toml block of docs/scenario.md, found from this source file.
std::string documented_example() {
  const auto document = std::filesystem::path(__FILE__).parent_path().parent_path() / "docs" / "scenario.md";
  std::ifstream file(document);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str(), fence = "```toml\n";
  const std::size_t begin = all.find(fence);
  REQUIRE(begin != std::string::npos);
  return all.substr(begin + fence.size(), all.find("```", begin + fence.size()) - begin - fence.size());
}

}  // namespace

TEST_CASE("the example of docs/scenario.md is a scenario", "[scenario]") {
  const Scenario s = parse_scenario(documented_example(), "docs/scenario.md");
  CHECK(s.name == "gpt2-124m-dp4");
  CHECK(parameter_count(s.model) == 124'439'808);
  CHECK(s.model.padded_vocab_size == 50304);
  CHECK(s.parallel.data_parallel_size == 4);
  CHECK(s.overlap.overlap_param_gather);
  CHECK(s.num_microbatches() == 2);
  CHECK(s.compare.ranks == std::vector<std::int64_t>{1, 2, 4});
}

TEST_CASE("every key of the reader is in docs/scenario.md", "[scenario]") {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path() / "docs" / "scenario.md");
  std::stringstream text;
  text << file.rdbuf();
  // The reader lists a section's keys when it meets one that resembles none of them.
  for (const std::string section : {"model", "cluster", "parallel", "overlap", "training", "compare"}) {
    const std::string message = override_message(section + ".qqqqqqqqqqqqqqqq=1");
    const std::string start = "expected one of ";
    REQUIRE(message.find(start) != std::string::npos);
    std::istringstream keys(message.substr(message.find(start) + start.size(),
                                           message.rfind(", got") - message.find(start) - start.size()));
    for (std::string key; keys >> key;) {
      if (key.back() == ',') key.pop_back();
      INFO(section << "." << key);
      CHECK(text.str().find("| `" + key + "` |") != std::string::npos);
    }
  }
}

TEST_CASE("defaults are the structs' and follow what was given", "[scenario]") {
  const Scenario s = parse_scenario(kTiny, "folder/tiny.toml");
  const Scenario built;
  CHECK(s.name == "tiny");
  CHECK(s.file.empty());
  CHECK(s.model.ffn_hidden_size == 256);
  CHECK(s.model.max_position_embeddings == 32);
  CHECK(s.model.padded_vocab_size == 250);
  CHECK(s.model.normalization == Normalization::layer_norm);
  CHECK_FALSE(s.model.swiglu);
  CHECK(s.model.position_embedding_type == PositionEmbedding::learned_absolute);
  CHECK(s.model.kv_heads() == 4);
  CHECK(s.model.add_bias_linear);
  CHECK_FALSE(s.model.untie_embeddings_and_output_weights);
  CHECK(parse_scenario(kTiny, "t", {"model.swiglu=true"}).model.ffn_hidden_size == 256);
  CHECK(s.cluster.link_GBps == built.cluster.link_GBps);
  CHECK(s.cluster.link_latency_us == built.cluster.link_latency_us);
  CHECK(s.overlap.bucket_size == 0);
  CHECK(s.overlap.grad_reduce_in_fp32);
  CHECK(s.training.global_batch_size == 1);
  CHECK(s.training.lr == built.training.lr);
  CHECK(s.training.min_lr == Approx(built.training.min_lr).epsilon(1e-15));
  CHECK(s.training.lr_warmup_iters == built.training.lr_warmup_iters);
  CHECK(s.training.seed == built.training.seed);
  CHECK(s.training.timeout_s == built.training.timeout_s);
  CHECK(s.compare.repeats == built.compare.repeats);
  const Scenario wide = parse_scenario(kTiny, "t", {"parallel.data_parallel_size=4", "training.micro_batch_size=2"});
  CHECK(wide.training.global_batch_size == 8);
  CHECK(wide.num_microbatches() == 1);
  CHECK(parse_scenario(kTiny, "t", {"training.train_iters=3"}).training.lr_warmup_iters == 2);
}

TEST_CASE("channels and priorities are said by group", "[scenario]") {
  const Scenario s = parse_scenario(
      kTiny +
          "[cluster]\nchannel_GBps = 20\nhigh_priority_stream_groups = [\"dp\", \"pp\"]\n"
          "[cluster.nccl_communicator_config.dp]\nmax_ctas = 8\n[cluster.nccl_communicator_config.embd]\n",
      "t", {"cluster.nccl_communicator_config.tp.max_ctas=4"});
  CHECK(s.cluster.channel_GBps == 20);
  CHECK(s.cluster.high_priority_stream_groups == std::vector<std::string>{"dp", "pp"});
  CHECK(message_of(kTiny + "[cluster]\nhigh_priority_stream_groups = [\"pd\"]\n") ==
        "s.toml:8: [cluster] high_priority_stream_groups: expected groups out of dp, tp, cp and pp, got \"pd\"; did "
        "you mean "
        "\"dp\"?");
  CHECK(parse_scenario(
            kTiny + "[cluster]\nnccl_ub = true\n[cluster.nccl_communicator_config.tp]\ncta_policy = \"zero\"\n", "t")
            .cluster.zero_cta_groups == std::set<std::string>{"tp"});
  CHECK(message_of(kTiny + "[cluster.nccl_communicator_config.tp]\ncta_policy = \"zero\"\n") ==
        "s.toml:8: [cluster.nccl_communicator_config.tp] cta_policy: expected [cluster] nccl_ub = true with \"zero\": "
        "copy engines go between registered buffers");
  CHECK(s.cluster.max_ctas == std::map<std::string, std::int64_t>{{"dp", 8}, {"tp", 4}});
}

TEST_CASE("every key reaches its field", "[scenario]") {
  const Scenario s = parse_scenario(
      "name = \"n\"\nplatform = \"p.toml\"\n" + kTiny +
          "ffn_hidden_size = 96\nmax_position_embeddings = 48\nmake_vocab_size_divisible_by = 128\n"
          "normalization = \"RMSNorm\"\nswiglu = true\nposition_embedding_type = \"rope\"\nrotary_base = 5e5\n"
          "num_query_groups = 2\nadd_bias_linear = false\nuntie_embeddings_and_output_weights = true\n"
          "[cluster]\ncores_per_device = 3\nranks_per_device = 2\nlink_GBps = 0.25\nlink_latency_us = 7\n"
          "[parallel]\ndata_parallel_size = 2\n"
          "[overlap]\noverlap_grad_reduce = true\noverlap_param_gather = true\nbucket_size = 5000\n"
          "grad_reduce_in_fp32 = false\n"
          "[training]\nmicro_batch_size = 3\nglobal_batch_size = 12\nprecision = \"fp64\"\ntrain_iters = 50\nlr = 0.5\n"
          "min_lr = 0.25\nlr_warmup_iters = 4\nlr_decay_iters = 40\nweight_decay = 0.2\nadam_beta1 = 0.8\n"
          "adam_beta2 = 0.7\nadam_eps = 1e-6\nclip_grad = 0\nseed = 9\ninit_method_std = 0.5\ndata = \"d.txt\"\n"
          "load = \"w.safetensors\"\ncheckpoint_dir = \"ck\"\ncheckpoint_interval = 6\ntimeout_s = 1.5\n"
          "[compare]\nmodes = [\"plain\"]\nranks = [1, 8]\nrepeats = 3\n",
      "t");
  CHECK(s.name == "n");
  CHECK(s.platform == "p.toml");
  CHECK(s.model.num_layers == 2);
  CHECK(s.model.hidden_size == 64);
  CHECK(s.model.num_attention_heads == 4);
  CHECK(s.model.ffn_hidden_size == 96);
  CHECK(s.model.seq_length == 32);
  CHECK(s.model.max_position_embeddings == 48);
  CHECK(s.model.vocab_size == 250);
  CHECK(s.model.padded_vocab_size == 256);
  CHECK(s.model.normalization == Normalization::rms_norm);
  CHECK(s.model.swiglu);
  CHECK(s.model.position_embedding_type == PositionEmbedding::rope);
  CHECK(s.model.rotary_base == 5e5);
  CHECK(s.model.num_query_groups == 2);
  CHECK_FALSE(s.model.add_bias_linear);
  CHECK(s.model.untie_embeddings_and_output_weights);
  CHECK(s.cluster.cores_per_device == 3);
  CHECK(s.cluster.ranks_per_device == 2);
  CHECK(s.cluster.link_GBps == 0.25);
  CHECK(s.cluster.link_latency_us == 7);
  CHECK(s.parallel.data_parallel_size == 2);
  CHECK(s.overlap.overlap_grad_reduce);
  CHECK(s.overlap.overlap_param_gather);
  CHECK(s.overlap.bucket_size == 5000);
  CHECK_FALSE(s.overlap.grad_reduce_in_fp32);
  const Training& t = s.training;
  CHECK(t.micro_batch_size == 3);
  CHECK(t.global_batch_size == 12);
  CHECK(s.num_microbatches() == 2);
  CHECK(t.precision == "fp64");
  CHECK(t.train_iters == 50);
  CHECK(t.lr == 0.5);
  CHECK(t.min_lr == 0.25);
  CHECK(t.lr_warmup_iters == 4);
  CHECK(t.lr_decay_iters == 40);
  CHECK(t.weight_decay == 0.2);
  CHECK(t.adam_beta1 == 0.8);
  CHECK(t.adam_beta2 == 0.7);
  CHECK(t.adam_eps == 1e-6);
  CHECK(t.clip_grad == 0);
  CHECK(t.seed == 9);
  CHECK(t.init_method_std == 0.5);
  CHECK(t.data == std::vector<std::string>{"d.txt"});
  CHECK(t.load == "w.safetensors");
  CHECK(t.checkpoint_dir == "ck");
  CHECK(t.checkpoint_interval == 6);
  CHECK(t.timeout_s == 1.5);
  CHECK(s.compare.modes == std::vector<std::string>{"plain"});
  CHECK(s.compare.ranks == std::vector<std::int64_t>{1, 8});
  CHECK(s.compare.repeats == 3);
}

TEST_CASE("presets may be overridden key by key", "[scenario]") {
  const auto model = [](const std::vector<std::string>& overrides) { return parse_scenario("", "t", overrides).model; };
  const Transformer deep = model({"model.preset=gpt2-124m", "model.num_layers=3"});
  CHECK(deep.num_layers == 3);
  CHECK(deep.hidden_size == 768);
  CHECK(deep.ffn_hidden_size == 3072);
  CHECK(model({"model.preset=gpt2-124m", "model.hidden_size=384"}).ffn_hidden_size == 1536);
  CHECK(model({"model.preset=gpt2-124m", "model.seq_length=512"}).max_position_embeddings == 1024);
  const Transformer llama = model({"model.preset=llama3-8b", "model.num_layers=3"});
  CHECK(llama.ffn_hidden_size == 14336);
  CHECK(llama.num_query_groups == 8);
  CHECK(llama.rotary_base == 5e5);
  CHECK(model({"model.preset=llama3-8b", "model.hidden_size=2048"}).ffn_hidden_size == 8192);
  CHECK(model({"model.preset=gpt2-124m", "model.num_attention_heads=6"}).kv_heads() == 6);
  CHECK(message_of("[model]\npreset = \"gpt2-124\"\n").find("did you mean \"gpt2-124m\"?") != std::string::npos);
}

TEST_CASE("NeMo's spellings are accepted, but not both", "[scenario]") {
  const Scenario s = parse_scenario(kTiny, "t", {"overlap.overlap_grad_sync=true", "overlap.overlap_param_sync=true"});
  CHECK(s.overlap.overlap_grad_reduce);
  CHECK(s.overlap.overlap_param_gather);
  CHECK(
      message_of(kTiny + "[overlap]\noverlap_grad_reduce = true\noverlap_grad_sync = true\n") ==
      "s.toml:9: [overlap] overlap_grad_sync: expected only one of overlap_grad_reduce and overlap_grad_sync (the same "
      "setting), got both");
}

TEST_CASE("every other spelling is that of a key", "[scenario]") {
  const auto parse = [](const std::vector<std::string>& overrides) { return parse_scenario(kTiny, "t", overrides); };
  CHECK(parse_scenario("[model]\nnum_layers = 2\nhidden_size = 64\nnum_attention_heads = 4\nencoder_seq_length = 32\n"
                       "vocab_size = 250\n",
                       "t")
            .model.seq_length == 32);
  CHECK_FALSE(parse({"overlap.grad_sync_dtype=bf16"}).overlap.grad_reduce_in_fp32);
  CHECK(parse({"overlap.grad_sync_dtype=fp32"}).overlap.grad_reduce_in_fp32);
  CHECK_FALSE(parse({"overlap.tp_comm_split_ag=false"}).overlap.tp_comm_overlap_ag);
  CHECK_FALSE(parse({"overlap.tp_comm_split_rs=false"}).overlap.tp_comm_overlap_rs);
  CHECK(parse({"overlap.ub_tp_comm_overlap=true", "parallel.tensor_model_parallel_size=2",
               "parallel.sequence_parallel=true"})
            .overlap.tp_comm_overlap);
  CHECK(parse({"overlap.ub_tp_comm_overlap_cfg={fc1_fprop={method=\"ring_exchange\"}}"})
            .overlap.tp_comm_overlap_cfg.contains("fc1_fprop"));
  CHECK(parse({"training.gradient_clip_val=0.5"}).training.clip_grad == 0.5);
  const Scenario s =
      parse({"training.activations_checkpoint_granularity=full", "training.activations_checkpoint_method=block",
             "training.activations_checkpoint_num_layers=2"});
  CHECK(s.training.recompute.granularity == Recompute::Granularity::full);
  CHECK(s.training.recompute.method == Recompute::Method::block);
  CHECK(s.training.recompute.num_layers == 2);
  const Parallel split =
      parse({"model.num_layers=6", "parallel.pipeline_model_parallel_size=3",
             "parallel.decoder_first_pipeline_num_layers=1", "parallel.decoder_last_pipeline_num_layers=1"})
          .parallel;
  CHECK(split.num_layers_in_first_pipeline_stage == 1);
  CHECK(split.num_layers_in_last_pipeline_stage == 1);
  // Messages name the spelling in the file.
  CHECK(override_message("overlap.ub_tp_comm_overlap=3") ==
        "--set overlap.ub_tp_comm_overlap: expected true or false, got 3");
  CHECK(override_message("overlap.fp8_params=true") ==
        "--set overlap.fp8_params: expected precision = bf16 as well, got fp32: the optimizer keeps the parameters in "
        "fp32, and what goes round is cast from them (a limit of Stretto's own)");
  CHECK(override_message("overlap.grad_sync_dtype=fp16") ==
        "--set overlap.grad_sync_dtype: expected one of fp32, bf16, got \"fp16\"");
  CHECK(message_of(kTiny, {"overlap.grad_sync_dtype=bf16", "overlap.grad_reduce_in_fp32=true"}) ==
        "--set overlap.grad_sync_dtype: expected only one of grad_reduce_in_fp32 and grad_sync_dtype (the same "
        "setting), got both");
}

TEST_CASE("what a file lacks is said", "[scenario]") {
  const std::string wanted =
      "s.toml:1: [model] preset: expected a preset, hf_config, or num_layers, hidden_size, num_attention_heads, "
      "seq_length and "
      "vocab_size, got ";
  CHECK(message_of("") == wanted + "an empty file");
  CHECK(message_of("# only a comment\n") == wanted + "an empty file");
  CHECK(message_of("[training]\nlr = 1e-3\n") == wanted + "no [model] section");
  CHECK(message_of("\n[model]\nnum_layers = 2\n") ==
        "s.toml:2: [model] hidden_size: expected an integer from 1 to 1048576, got nothing");
  CHECK(message_of("[modle]\npreset = \"gpt2-124m\"\n") ==
        "s.toml:1: modle: expected a known key, got \"modle\"; did you mean \"model\"?");
  CHECK(message_of(kTiny + "hiden_size = 3\n") ==
        "s.toml:7: [model] hiden_size: expected a known key, got \"hiden_size\"; did you mean \"hidden_size\"?");
}

TEST_CASE("what is not modelled is refused by its name, never by another key's", "[scenario]") {
  CHECK(override_message("overlap.moe_enable_deepep=true")
            .ends_with(": this transport of experts' rows is not modelled yet"));
  CHECK(override_message("parallel.moe_token_drop_policy=probs")
            .ends_with(": a capacity of experts that drops tokens is not modelled yet"));
  CHECK(override_message("training.num_experts=8").ends_with(": this of experts is not modelled yet"));
  for (const char* set : {"training.fp8_interval=1", "training.enable_fp8_all_gather=true"})
    CHECK(override_message(set).ends_with(": this fp8 compute is not modelled yet"));
  CHECK(override_message("training.fp8_multi_head_attention=true").ends_with(": attention in fp8 is not modelled yet"));
  CHECK(override_message("training.fp4_quantizer_factory=a").ends_with(": this fp4 compute is not modelled yet"));
  CHECK(override_message("training.precision=fp8_cs").find("fp8_format") != std::string::npos);
  CHECK(override_message("model.qk_rope_head_dim=64")
            .ends_with("multi-latent attention of this family is not modelled yet"));
  CHECK(override_message("parallel.expert_parallel_degree=2")
            .ends_with(": expert parallelism is expert_model_parallel_size here"));
  CHECK(override_message("model.mtp_num_layers=1").ends_with(": multi-token prediction is not modelled yet"));
  CHECK(override_message("overlap.fp8_param_gatther=true").ends_with("did you mean \"fp8_param_gather\"?"));
  CHECK(not_modelled("--num-experts") == "this of experts is not modelled yet");
  CHECK(not_modelled("moe_router_topk").empty());
  CHECK(not_modelled("--fp8-param-gather").empty());
  CHECK(not_modelled("num_layers").empty());
}

TEST_CASE("keys that must fit each other are checked", "[scenario]") {
  CHECK(override_message("model.num_attention_heads=5") ==
        "--set model.num_attention_heads: expected a divisor of hidden_size 64, or kv_channels as well, got 5");
  CHECK(override_message("model.num_query_groups=3") ==
        "--set model.num_query_groups: expected a divisor of num_attention_heads 4, got 3");
  CHECK(override_message("model.rotary_base=5e5") ==
        "--set model.rotary_base: expected position_embedding_type = \"rope\" as well, got \"learned_absolute\"");
  CHECK(
      message_of(kTiny, {"model.position_embedding_type=rope", "model.hidden_size=60"}) ==
      "s.toml:4: [model] num_attention_heads: expected an even hidden_size / num_attention_heads for rope, got 60 / 4 "
      "= 15");
  CHECK(override_message("model.max_position_embeddings=16") ==
        "s.toml:5: [model] seq_length: expected at most max_position_embeddings 16, got 32");
  CHECK(message_of(kTiny + "[training]\nglobal_batch_size = 6\n", {"parallel.data_parallel_size=4"})
            .find("s.toml:8: [training] global_batch_size: expected a multiple of micro_batch_size x "
                  "data_parallel_size = 1 "
                  "x 4 = 4") == 0);
  CHECK(override_message("overlap.overlap_param_gather=true")
            .find("--set overlap.overlap_param_gather: expected overlap_grad_reduce = true as well, got false") == 0);
  CHECK(override_message("training.min_lr=1") == "--set training.min_lr: expected at most lr, got 1");
  CHECK(override_message("training.lr_warmup_iters=100") ==
        "--set training.lr_warmup_iters: expected less than the 100 iterations that the learning rate decays, got 100");
  // The table's numbers of ranks keep the micro-batches per rank, so they need not divide the file's batch.
  CHECK(message_of(kTiny, {"training.global_batch_size=4", "compare.ranks=[3]"}).empty());
}

TEST_CASE("NCCL is a network of GPUs that have a rank each", "[scenario]") {
  const std::string cluster = kTiny + "[cluster]\nnetwork = \"nccl\"\n";
  CHECK(parse_scenario(cluster + "ranks_per_device = 1\n", "t").cluster.network == Network::nccl);
  CHECK(parse_scenario(kTiny, "t").cluster.network == Network::links);
  CHECK_THROWS_WITH(parse_scenario(cluster, "t"),
                    Catch::Contains("expected ranks_per_device = 1 with \"nccl\", got 0"));
  CHECK_THROWS_WITH(parse_scenario(kTiny + "[cluster]\nnetwork = \"nccll\"\n", "t"), Catch::Contains("nccl"));
}

TEST_CASE("values out of range are refused", "[scenario]") {
  const char* bad[] = {"model.num_layers=0",    "model.hidden_size=2097152",     "cluster.link_GBps=0",
                       "cluster.link_GBps=nan", "cluster.link_latency_us=-1",    "parallel.data_parallel_size=0",
                       "overlap.bucket_size=0", "training.adam_beta1=1",         "training.adam_beta2=-0.1",
                       "training.adam_eps=0",   "training.precision=fp16",       "training.seed=-1",
                       "training.timeout_s=0",  "training.train_iters=0",        "training.micro_batch_size=0",
                       "compare.ranks=[0]",     "compare.ranks=[2.5]",           "compare.repeats=0",
                       "training.lr=\"fast\"",  "overlap.overlap_grad_reduce=1", "model=3",
                       "training.clip_grad=-1", "model.seq_length=1e3",          "training.data=3",
                       "model.swiglu=1",        "model.normalization=layernorm", "model.num_query_groups=0",
                       "model.rotary_base=1",   "model.add_bias_linear=\"no\""};
  for (const char* one : bad) {
    INFO(one);
    CHECK(override_message(one).rfind("--set ", 0) == 0);
  }
}

TEST_CASE("sizes whose products would not fit 64 bits are refused", "[scenario]") {
  const std::vector<std::string> largest = {"model.num_layers=2048", "model.hidden_size=1048576",
                                            "model.seq_length=4096", "model.vocab_size=16777216"};
  std::vector<std::string> more = largest;
  CHECK(message_of(kTiny, largest).empty());
  more.push_back("training.micro_batch_size=4096");
  CHECK(message_of(kTiny, more).find("2^60 bytes") != std::string::npos);
  CHECK(override_message("training.micro_batch_size=65536").empty());
  CHECK(message_of(kTiny, {"training.micro_batch_size=65536", "model.seq_length=512"}).find("tokens a micro-batch") !=
        std::string::npos);
  CHECK(override_message("training.global_batch_size=4294967296").find("layers x micro-batches") != std::string::npos);
  CHECK(message_of(kTiny, {"training.global_batch_size=1024", "compare.ranks=[16777216]"})
            .find("global batch of at most") != std::string::npos);
  CHECK(message_of(kTiny, {"training.micro_batch_size=65536", "parallel.data_parallel_size=16777216"})
            .find("global_batch_size") != std::string::npos);
}

TEST_CASE("paths are relative to the scenario's folder", "[scenario]") {
  const stretto::testing::TempDir temporary;
  const std::filesystem::path& folder = temporary.path();
  const std::string file = (folder / "tiny.toml").string();
  std::ofstream(file) << "platform = \"../hosts/p.toml\"\n"
                      << kTiny << "[training]\ndata = \"/data/x.bin\"\n"
                      << "load = \"../weights\"\n";
  const Scenario s = read_scenario(file, {"model.num_layers=5"});
  CHECK(s.file == file);
  CHECK(s.name == "tiny");
  CHECK(s.platform == (folder.parent_path() / "hosts" / "p.toml").string());
  CHECK(s.training.data == std::vector<std::string>{"/data/x.bin"});
  CHECK(s.training.load == (folder.parent_path() / "weights").string());
  CHECK(s.training.checkpoint_dir.empty());
  CHECK(s.model.num_layers == 5);
  CHECK_THROWS_AS(read_scenario((folder / "none.toml").string()), Error);
  CHECK_THROWS_AS(read_scenario(folder.string()), Error);
}
