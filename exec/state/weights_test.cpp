#include "exec/state/weights.hpp"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "base/rng.hpp"
#include "exec/state/export.hpp"
#include "model/scenario/hf_config.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

using namespace stretto;
using namespace stretto::exec;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;
using stretto::testing::message_of;
using stretto::testing::TempDir;

namespace {

struct Stored {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::string data;
};
// Writes the file as other programs may: in this order, and not aligned.
void write(const std::string& path, const std::vector<Stored>& tensors, const nlohmann::json& metadata = {}) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.is_null()) header["__metadata__"] = metadata;
  std::size_t at = 0;
  for (const Stored& t : tensors) {
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {at, at + t.data.size()}}};
    at += t.data.size();
  }
  std::string text = header.dump();
  if (text.size() % 2 == 0) text += ' ';
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) out.put(static_cast<char>(text.size() >> (8 * i)));
  out << text;
  for (const Stored& t : tensors) out << t.data;
}

template <class T>
Stored stored(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape,
              const std::vector<T>& values) {
  return {name, dtype, std::move(shape), {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}};
}
Stored f32(const std::string& name, std::vector<std::int64_t> shape, const std::vector<double>& values) {
  return stored(name, "F32", std::move(shape), std::vector<float>(values.begin(), values.end()));
}
Stored& find(std::vector<Stored>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(), [&](const Stored& t) { return t.name == name; });
}

// Returns element (row, col) of a parameter; exact in f32.
double value_of(const std::string& full_name, std::int64_t row, std::int64_t col) {
  return std::floor(1024 * normal(5, stream_of(full_name), static_cast<std::uint64_t>(row * 1000 + col))) / 1024;
}
std::vector<double> rows_of(const std::string& full_name, std::int64_t begin, std::int64_t end, std::int64_t cols) {
  std::vector<double> values;
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t col = 0; col < cols; ++col) values.push_back(value_of(full_name, row, col));
  return values;
}
std::vector<double> transposed(const std::string& full_name, std::int64_t rows, std::int64_t cols) {
  std::vector<double> values;
  for (std::int64_t col = 0; col < cols; ++col)
    for (std::int64_t row = 0; row < rows; ++row) values.push_back(value_of(full_name, row, col));
  return values;
}

Transformer gpt2() {
  Transformer model{2, 6, 3, 10, 4, 5, 7, 8};
  return model;
}
Transformer llama() {
  Transformer model = in_llama_style({2, 12, 6, 10, 4, 5, 7, 8});
  model.num_query_groups = 2;
  return model;
}

// Returns GPT2LMHeadModel's state dict: shapes [in, out] of its Conv1D, 1-d vectors.
std::vector<Stored> gpt2_file(const std::string& prefix) {
  std::vector<Stored> file;
  const auto matrix = [&](const std::string& theirs, const std::string& ours, std::int64_t out, std::int64_t in) {
    file.push_back(f32(prefix + theirs + ".weight", {in, out}, transposed(ours + ".weight", out, in)));
    file.push_back(f32(prefix + theirs + ".bias", {out}, rows_of(ours + ".bias", 0, 1, out)));
  };
  const auto norm = [&](const std::string& name) {
    for (const char* kind : {".weight", ".bias"})
      file.push_back(f32(prefix + name + kind, {6}, rows_of(name + kind, 0, 1, 6)));
  };
  file.push_back(f32(prefix + "wte.weight", {7, 6}, rows_of("wte.weight", 0, 7, 6)));
  file.push_back(f32(prefix + "wpe.weight", {5, 6}, rows_of("wpe.weight", 0, 5, 6)));
  for (const std::string h : {"h.0.", "h.1."}) {
    file.push_back({prefix + h + "attn.bias", "U8", {1, 1, 5, 5}, std::string(25, '\1')});  // the causal mask
    norm(h + "ln_1");
    matrix(h + "attn.c_attn", h + "qkv", 18, 6);
    matrix(h + "attn.c_proj", h + "proj", 6, 6);
    norm(h + "ln_2");
    matrix(h + "mlp.c_fc", h + "fc1", 10, 6);
    matrix(h + "mlp.c_proj", h + "fc2", 6, 10);
  }
  norm("ln_f");
  return file;
}

// Returns LlamaForCausalLM's state dict: Linear is [out, in]; q, k, v and gate, up are separate matrices.
std::vector<Stored> llama_file(const std::string& prefix) {
  std::vector<Stored> file;
  const auto rows = [&](const std::string& theirs, const std::string& ours, std::int64_t begin, std::int64_t end,
                        std::int64_t cols) {
    file.push_back(f32(theirs + ".weight", {end - begin, cols}, rows_of(ours + ".weight", begin, end, cols)));
  };
  const auto norm = [&](const std::string& theirs, const std::string& ours) {
    file.push_back(f32(prefix + theirs + ".weight", {12}, rows_of(ours + ".weight", 0, 1, 12)));
  };
  rows("lm_head", "lm_head", 0, 7, 12);
  rows(prefix + "embed_tokens", "wte", 0, 7, 12);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string theirs = "layers." + std::to_string(layer) + ".", ours = "h." + std::to_string(layer) + ".";
    rows(prefix + theirs + "self_attn.q_proj", ours + "qkv", 0, 12, 12);
    rows(prefix + theirs + "self_attn.k_proj", ours + "qkv", 12, 16, 12);
    rows(prefix + theirs + "self_attn.v_proj", ours + "qkv", 16, 20, 12);
    rows(prefix + theirs + "self_attn.o_proj", ours + "proj", 0, 12, 12);
    rows(prefix + theirs + "mlp.gate_proj", ours + "fc1", 0, 10, 12);
    rows(prefix + theirs + "mlp.up_proj", ours + "fc1", 10, 20, 12);
    rows(prefix + theirs + "mlp.down_proj", ours + "fc2", 0, 12, 10);
    norm(theirs + "input_layernorm", ours + "ln_1");
    norm(theirs + "post_attention_layernorm", ours + "ln_2");
    file.push_back(f32(prefix + theirs + "self_attn.rotary_emb.inv_freq", {1}, {1}));
  }
  norm("norm", "ln_f");
  return file;
}

void check_all(const Weights& weights, Transformer model) {
  model.padded_vocab_size = model.vocab_size;
  for (const Parameter& p : parameters(model)) {
    INFO(p.full_name());
    const FullTensor read = weights.read(p.full_name());
    CHECK(read.shape == std::vector<std::int64_t>{p.rows, p.cols});
    CHECK(read.values == rows_of(p.full_name(), 0, p.rows, p.cols));
  }
}

}  // namespace

TEST_CASE("weights are found by Hugging Face's names", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  for (const char* prefix : {"", "transformer."}) {
    write(path, gpt2_file(prefix));
    const Weights weights = Weights::open(path, gpt2());
    CHECK(weights.naming() == std::string("Hugging Face's GPT-2"));
    CHECK(weights.unused().empty());
    check_all(weights, gpt2());
  }
  for (const char* prefix : {"", "model."}) {
    write(path, llama_file(prefix));
    const Weights weights = Weights::open(path, llama());
    CHECK(weights.naming() == std::string("Hugging Face's Llama"));
    CHECK(weights.unused().empty());
    check_all(weights, llama());
  }
}

TEST_CASE("every expert has tensors of its own by Hugging Face's names", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  for (const bool is_qwen : {false, true}) {
    Transformer model = llama();
    model.qk_layernorm = is_qwen;
    model.experts.num_moe_experts = 3;
    if (is_qwen) model.experts.moe_layer_freq = {0, 1};
    std::vector<Stored> file = llama_file("model.");
    if (is_qwen)
      for (const std::string layer : {"0", "1"})
        for (const std::string head : {"q", "k"})
          file.push_back(f32("model.layers." + layer + ".self_attn." + head + "_norm.weight", {2},
                             rows_of("h." + layer + "." + head + "_norm.weight", 0, 1, 2)));
    std::erase_if(
        file, [&](const Stored& t) { return t.name.find(is_qwen ? "layers.1.mlp." : ".mlp.") != std::string::npos; });
    for (std::int64_t layer = is_qwen; layer < 2; ++layer) {
      const std::string ours = "h." + std::to_string(layer) + ".",
                        theirs = "model.layers." + std::to_string(layer) + (is_qwen ? ".mlp." : ".block_sparse_moe.");
      const auto add = [&](const std::string& name, const std::string& parameter, std::int64_t first, std::int64_t rows,
                           std::int64_t cols) {
        file.push_back(f32(theirs + name + ".weight", {rows, cols},
                           rows_of(ours + parameter + ".weight", first, first + rows, cols)));
      };
      add("gate", "router", 0, 3, 12);
      for (std::int64_t expert = 0; expert < 3; ++expert) {
        const std::string one = "experts." + std::to_string(expert) + ".";
        add(one + (is_qwen ? "gate_proj" : "w1"), "experts.fc1", expert * 20, 10, 12);
        add(one + (is_qwen ? "up_proj" : "w3"), "experts.fc1", expert * 20 + 10, 10, 12);
        add(one + (is_qwen ? "down_proj" : "w2"), "experts.fc2", expert * 12, 12, 10);
      }
    }
    write(path, file);
    const Weights weights = Weights::open(path, model);
    CHECK(weights.naming() == std::string(is_qwen ? "Hugging Face's Llama" : "Hugging Face's Mixtral"));
    CHECK(weights.unused().empty());
    check_all(weights, model);
  }
}

TEST_CASE("DeepSeek's weights by Hugging Face's names", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  for (const std::int64_t rank : {0, 5}) {
    Transformer model = llama();
    model.num_query_groups = model.num_attention_heads;
    model.qk_layernorm = true;
    model.padded_vocab_size = model.vocab_size;
    model.latent = {true, rank, 4, 3, 2, 5};
    model.experts.num_moe_experts = 3;
    model.experts.moe_ffn_hidden_size = model.experts.moe_shared_expert_intermediate_size = 7;
    model.experts.moe_layer_freq = {0, 1};
    model.experts.moe_router_score_function = RouterScore::sigmoid;
    model.experts.moe_router_enable_expert_bias = true;
    const std::map<std::string, std::vector<std::string>> names = {
        {"q", {"self_attn.q_proj"}},
        {"q_down", {"self_attn.q_a_proj"}},
        {"q_norm", {"self_attn.q_a_layernorm"}},
        {"q_up", {"self_attn.q_b_proj"}},
        {"kv_down", {"self_attn.kv_a_proj_with_mqa"}},
        {"kv_norm", {"self_attn.kv_a_layernorm"}},
        {"kv_up", {"self_attn.kv_b_proj"}},
        {"proj", {"self_attn.o_proj"}},
        {"ln_1", {"input_layernorm"}},
        {"ln_2", {"post_attention_layernorm"}},
        {"fc1", {"mlp.gate_proj", "mlp.up_proj"}},
        {"fc2", {"mlp.down_proj"}},
        {"router", {"mlp.gate"}},
        {"experts.fc1", {"gate_proj", "up_proj"}},
        {"experts.fc2", {"down_proj"}},
        {"shared.fc1", {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"}},
        {"shared.fc2", {"mlp.shared_experts.down_proj"}},
        {"wte", {"embed_tokens"}},
        {"ln_f", {"norm"}}};
    model.padded_vocab_size = model.vocab_size;
    std::vector<Stored> file;
    for (const Parameter& p : parameters(model)) {
      const std::string stem = p.name.substr(0, p.name.rfind('.'));
      const std::int64_t owners = std::max<std::int64_t>(1, p.experts);
      const std::string prefix = "model." + (p.layer < 0 ? "" : "layers." + std::to_string(p.layer) + ".");
      if (stem == "lm_head") {
        file.push_back(f32("lm_head.weight", {p.rows, p.cols}, rows_of(p.full_name(), 0, p.rows, p.cols)));
        continue;
      }
      const std::vector<std::string>& pieces = names.at(stem);
      const std::int64_t rows = p.rows / owners / std::ssize(pieces);
      for (std::int64_t i = 0; i < owners * std::ssize(pieces); ++i) {
        const std::int64_t owner = i / std::ssize(pieces);
        const std::string expert = p.experts > 0 ? "mlp.experts." + std::to_string(owner) + "." : "";
        const std::string name = prefix + expert + pieces[static_cast<std::size_t>(i % std::ssize(pieces))] + ".weight";
        const std::vector<std::int64_t> shape =
            p.decayed ? std::vector<std::int64_t>{rows, p.cols} : std::vector<std::int64_t>{p.cols};
        file.push_back(f32(name, shape, rows_of(p.full_name(), i * rows, (i + 1) * rows, p.cols)));
      }
    }
    const std::string bias = "h.1.router.bias";
    file.push_back(f32("model.layers.1.mlp.gate.e_score_correction_bias", {3}, rows_of(bias, 0, 1, 3)));
    write(path, file);
    const Weights weights = Weights::open(path, model);
    CHECK(weights.read(bias).values == rows_of(bias, 0, 1, 3));
    CHECK(weights.naming() == std::string("Hugging Face's DeepSeek"));
    CHECK(weights.unused().empty());
    check_all(weights, model);
  }
}

TEST_CASE("weights that are cut short while they are in use are an error", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  write(path, gpt2_file(""));
  const Weights weights = Weights::open(path, gpt2());
  fs::resize_file(path, 4000);
  CHECK_THAT(message_of(
                 [&] {
                   for (const Parameter& p : parameters(gpt2())) weights.read(p.full_name());
                 },
                 ErrorKind::runtime),
             Contains(path) && Contains("cut short"));
}

TEST_CASE("tensors that the model has no place for are named", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  write(path, llama_file("model."));
  Transformer model = llama();
  CHECK(Weights::open(path, model).unused().empty());
  model.num_layers = 1;
  const std::vector<std::string> unused = Weights::open(path, model).unused();
  CHECK(unused.size() == 9);
  CHECK(some_of(unused) ==
        "model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.weight, "
        "model.layers.1.mlp.gate_proj.weight, …");
  CHECK(some_of({"a", "b"}) == "a, b");
}

TEST_CASE("weights of every floating type are widened", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  std::vector<Stored> file = gpt2_file("");
  const std::vector<double> exact = {1.5, -0.25, 0, 3, 65504, 0x1p-24};
  find(file, "ln_f.weight") = stored("ln_f.weight", "F64", {6}, exact);
  // 1.5, −0.25, −0, 3, the largest, the smallest.
  find(file, "ln_f.bias") =
      stored<std::uint16_t>("ln_f.bias", "F16", {6}, {0x3e00, 0xb400, 0x8000, 0x4200, 0x7bff, 0x0001});
  std::vector<Bf16> rounded;
  for (const double value : exact) rounded.push_back(to_bf16(value));
  find(file, "h.0.ln_1.bias") = stored("h.0.ln_1.bias", "BF16", {6}, rounded);
  // The largest subnormal, the smallest normal, the largest.
  find(file, "h.0.ln_2.bias") =
      stored<std::uint16_t>("h.0.ln_2.bias", "F16", {6}, {0x03ff, 0x0400, 0x7bff, 0xfbff, 0x3c00, 0x3c01});
  write(path, file);
  const Weights weights = Weights::open(path, gpt2());
  CHECK(weights.read("ln_f.weight").values == exact);
  CHECK(weights.read("ln_f.bias").values == exact);
  for (std::size_t i = 0; i < exact.size(); ++i)
    CHECK(weights.read("h.0.ln_1.bias").values[i] == double(to_float(rounded[i])));
  const std::vector<double> edge = weights.read("h.0.ln_2.bias").values;
  CHECK(edge[0] == 1023 * 0x1p-24);
  CHECK(edge[1] == 0x1p-14);
  CHECK(edge[2] == 65504);
  CHECK(edge[3] == -65504);
  CHECK(edge[4] == 1);
  CHECK(edge[5] == 1 + 0x1p-10);
}

TEST_CASE("weights that do not fit are refused in words", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const auto refused = [&](std::vector<Stored> file, const Transformer& model) {
    write(path, file);
    const std::string message = message_of([&] { Weights::open(path, model); });
    CHECK_THAT(message, Contains(path));
    CHECK(message.find('\n') == std::string::npos);
    return message;
  };
  const auto without = [](std::vector<Stored> file, const std::string& name) {
    std::erase_if(file, [&](const Stored& t) { return t.name == name; });
    return file;
  };
  CHECK_THAT(refused(without(gpt2_file(""), "h.1.mlp.c_fc.weight"), gpt2()),
             Contains("has no tensor h.1.mlp.c_fc.weight of shape [6, 10]"));
  CHECK_THAT(refused(without(gpt2_file(""), "ln_f.bias"), gpt2()), Contains("has no tensor ln_f.bias of shape [6]"));
  CHECK_THAT(refused(without(llama_file("model."), "lm_head.weight"), llama()),
             Contains("lm_head.weight of shape [7, 12]; a model whose head is its embedding has untie_"));
  Transformer model = gpt2();
  model.vocab_size = 6;
  CHECK_THAT(refused(gpt2_file(""), model), Contains("wte.weight: expected shape [6, 6]") && Contains("got [7, 6]"));
  // The number of elements is right, but the matrix is not transposed.
  std::vector<Stored> file = gpt2_file("");
  find(file, "h.0.mlp.c_fc.weight").shape = {10, 6};
  CHECK_THAT(refused(file, gpt2()), Contains("expected shape [6, 10]") && Contains("got [10, 6]"));
  file = gpt2_file("");
  find(file, "ln_f.bias").dtype = "I32";
  CHECK_THAT(refused(file, gpt2()), Contains("tensor ln_f.bias: expected F64, F32, BF16 or F16, got I32"));
  CHECK_THAT(refused({f32("layers.0.weight", {1}, {1})}, gpt2()), Contains("got layers.0.weight"));
  CHECK_THAT(refused({}, gpt2()), Contains("got none"));
  model = llama();
  model.position_embedding_type = PositionEmbedding::learned_absolute;
  CHECK_THAT(refused(llama_file("model."), model), Contains("Llama has no wpe.weight"));
  model = gpt2();
  model.swiglu = true;
  CHECK_THAT(refused(gpt2_file(""), model), Contains("h.0.mlp.c_fc.weight: expected shape [6, 20]"));
  model = llama();
  model.swiglu = false;
  CHECK_THAT(refused(llama_file(""), model), Contains("fc1 in 2 parts (from mlp.gate_proj on)"));
  CHECK_THAT(message_of([&] { Weights::open(dir.file("none.safetensors"), gpt2()); }), Contains("No such file"));
  std::ofstream(path) << "no safetensors";
  CHECK_THAT(message_of([&] { Weights::open(path, gpt2()); }), Contains("no safetensors file"));
}

TEST_CASE("weights in several files are found by their index", "[weights]") {
  const TempDir dir;
  std::vector<Stored> all = llama_file("model.");
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  nlohmann::json map = nlohmann::json::object();
  for (auto t = all.begin(); t != all.end(); ++t) map[t->name] = t < middle ? "a.safetensors" : "b.safetensors";
  write(dir.file("a.safetensors"), {all.begin(), middle});
  // A tensor that the index has in another file is not taken from this one.
  std::vector<Stored> second(middle, all.end());
  second.push_back(f32(all.front().name, {1}, {1}));
  write(dir.file("b.safetensors"), second);
  const std::string index = dir.file("model.safetensors.index.json");
  const auto with_map = [&](const nlohmann::json& weight_map) {
    std::ofstream(index) << nlohmann::json({{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}});
    return [&] { Weights::open(index, llama()); };
  };
  with_map(map);
  check_all(Weights::open(index, llama()), llama());
  check_all(Weights::open(dir.file(""), llama()), llama());

  nlohmann::json wrong = map;
  wrong["other.weight"] = "a.safetensors";
  CHECK_THAT(message_of(with_map(wrong)), Contains("a.safetensors has no tensor other.weight"));
  wrong = map;
  wrong["lm_head.weight"] = "../a.safetensors";
  CHECK_THAT(message_of(with_map(wrong)), Contains("lm_head.weight: expected a file of the same folder"));
  wrong["lm_head.weight"] = 3;
  CHECK_THAT(message_of(with_map(wrong)), Contains("expected an object weight_map"));
  std::ofstream(index) << R"({"weight_map": {"a": "x", "a": "y"}})";
  CHECK_THAT(message_of([&] { Weights::open(index, llama()); }), Contains(index) && Contains("names a twice"));
  for (const char* text : {"[]", "{", R"({"weight_map": 3})", R"({"metadata": {"weight_map": {}}})", "{} 3"}) {
    std::ofstream(index) << text;
    CHECK_THAT(message_of([&] { Weights::open(index, llama()); }), Contains(index));
  }
  wrong["lm_head.weight"] = "c.safetensors";
  CHECK_THAT(message_of(with_map(wrong)), Contains("c.safetensors") && Contains("No such file"));
  fs::remove(index);
  CHECK_THAT(message_of([&] { Weights::open(dir.file(""), llama()); }), Contains("expected a .safetensors file, or a"));
  fs::copy(dir.file("a.safetensors"), dir.file("model.safetensors"));
  CHECK_THAT(message_of([&] { Weights::open(dir.file(""), llama()); }), Contains("model.safetensors: has no tensor"));
}

TEST_CASE("a checkpoint of Stretto's gives its weights, and Hugging Face's names", "[weights]") {
  const TempDir dir;
  for (const Transformer& model : {gpt2(), llama()}) {
    Transformer saved = model;
    saved.padded_vocab_size = saved.vocab_size;
    std::vector<Stored> file;
    for (const Parameter& p : parameters(saved)) {
      file.push_back(f32(p.full_name(), {p.rows, p.cols}, rows_of(p.full_name(), 0, p.rows, p.cols)));
      file.push_back(f32("adam.m." + p.full_name(), {1}, {0}));
    }
    const nlohmann::json metadata = {
        {"num_layers", "2"},
        {"hidden_size", std::to_string(model.hidden_size)},
        {"num_attention_heads", std::to_string(model.num_attention_heads)},
        {"num_query_groups", std::to_string(model.kv_heads())},
        {"ffn_hidden_size", "10"},
        {"vocab_size", "7"},
        {"normalization", name_of(model.normalization)},
        {"position_embedding_type", name_of(model.position_embedding_type)},
        {"swiglu", std::to_string(model.swiglu)},
        {"add_bias_linear", std::to_string(model.add_bias_linear)},
        {"untie_embeddings_and_output_weights", std::to_string(model.untie_embeddings_and_output_weights)}};
    const std::string path = dir.file("step.safetensors"), exported = dir.file("exported.safetensors");
    write(path, file, metadata);
    const Weights weights = Weights::open(path, model);
    CHECK(weights.naming() == std::string("Stretto"));
    CHECK(weights.unused().empty());
    check_all(weights, model);
    Transformer other = model;
    other.num_attention_heads = 1;
    CHECK_THAT(message_of([&] { Weights::open(path, other); }),
               Contains("num_attention_heads = " + std::string(metadata["num_attention_heads"])));

    export_to_huggingface(path, {exported, dir.file("config.json")});
    Transformer config = read_hf_config(dir.file("config.json")).model;
    config.max_position_embeddings = model.max_position_embeddings;  // this file does not state it
    CHECK(write_hf_config(config) == write_hf_config(model));
    check_all(Weights::open(exported, model), model);
    // Names, shapes and contents must be those of Hugging Face's file.
    const TensorFile written = TensorFile::open(exported);
    std::vector<std::byte> scratch;
    CHECK(written.metadata().at("format") == "pt");
    std::vector<Stored> theirs = model.swiglu ? llama_file("model.") : gpt2_file("transformer.");
    std::erase_if(theirs, [](const Stored& t) { return is_no_parameter(t.name); });
    REQUIRE(written.tensors().size() == theirs.size());
    for (const StoredTensor& tensor : written.tensors()) {
      INFO(tensor.name);
      const Stored& same = find(theirs, tensor.name);
      CHECK(tensor.dtype == "F32");
      CHECK(tensor.shape == same.shape);
      CHECK(std::memcmp(written.data(tensor, scratch).data(), same.data.data(), same.data.size()) == 0);
    }
  }
}

TEST_CASE("what cannot be exported is said", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  write(path, gpt2_file(""));
  CHECK_THAT(message_of([&] { export_to_huggingface(path, {dir.file("out"), ""}); }), Contains("its metadata has no"));
  Transformer mixture = llama();
  mixture.swiglu = false;
  CHECK_THROWS_WITH(naming_for(mixture), Contains("a mixture"));
}

TEST_CASE("numbers in weights that are not finite are named", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const auto refusal = [&](std::vector<Stored> file, const std::string& name, std::size_t at, float value,
                           const Transformer& model, const std::string& parameter) {
    std::memcpy(find(file, name).data.data() + at * sizeof value, &value, sizeof value);
    write(path, file);
    const Weights weights = Weights::open(path, model);
    return message_of([&] { weights.read(parameter); });
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  CHECK_THAT(refusal(gpt2_file(""), "h.1.mlp.c_fc.weight", 13, nan, gpt2(), "h.1.fc1.weight"),
             Contains("w.safetensors: tensor h.1.mlp.c_fc.weight: element [1, 3]: expected a finite number, got nan"));
  CHECK_THAT(refusal(gpt2_file(""), "ln_f.bias", 5, -infinity, gpt2(), "ln_f.bias"),
             Contains("tensor ln_f.bias: element [5]: expected a finite number, got -inf"));
  CHECK_THAT(refusal(llama_file("model."), "model.layers.0.self_attn.v_proj.weight", 12 * 3 + 7, nan, llama(),
                     "h.0.qkv.weight"),
             Contains("tensor model.layers.0.self_attn.v_proj.weight: element [3, 7]: "));
}

TEST_CASE("a head that differs from the embedding it is tied to is refused", "[weights]") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  for (const bool is_same : {true, false}) {
    std::vector<Stored> file = llama_file("model.");
    std::erase_if(file, [](const Stored& t) { return t.name == "lm_head.weight"; });
    Stored head = find(file, "model.embed_tokens.weight");
    head.name = "lm_head.weight";
    if (!is_same) head.data[4 * (12 * 2 + 5)] ^= 1;
    file.push_back(head);
    write(path, file);
    Transformer tied = llama();
    CHECK_NOTHROW(Weights::open(path, tied));
    tied.untie_embeddings_and_output_weights = false;
    if (is_same)
      CHECK(Weights::open(path, tied).unused().empty());
    else
      CHECK_THAT(message_of([&] { Weights::open(path, tied); }),
                 Contains("tensor lm_head.weight: expected model.embed_tokens.weight, got another value at [2, 5]; the "
                          "scenario's model has untie_embeddings_and_output_weights = false"));
  }
  Transformer tied = llama();
  tied.untie_embeddings_and_output_weights = false;
  tied.vocab_size = 7;
  std::vector<Stored> file = llama_file("model.");
  find(file, "lm_head.weight") = f32("lm_head.weight", {1, 12}, std::vector<double>(12, 1.0));
  write(path, file);
  CHECK_THAT(message_of([&] { Weights::open(path, tied); }), Contains("got another shape, [1, 12]"));
}
