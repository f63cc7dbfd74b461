#include "model/layout.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace stretto {
namespace {

// Returns parse_layout's result as "E2|3|1L", with layers counted.
std::string text_of(const std::vector<ModelChunk>& chunks) {
  std::string text;
  std::int64_t layer = 0;
  for (const ModelChunk& chunk : chunks) {
    CHECK(chunk.first_layer == layer);
    layer = chunk.end_layer;
    text += (text.empty() ? "" : "|") + std::string(chunk.has_embedding ? "E" : "") + std::to_string(chunk.layers()) +
            (chunk.has_head ? "L" : "");
  }
  return text;
}

std::string error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

struct Split {
  std::int64_t layers = 0, stages = 1, chunks = 1;
  std::int64_t first = 0, last = 0;
  bool embedding = false, head = false;
  std::string layout = "";

  std::vector<ModelChunk> run() const {
    Transformer model;
    model.num_layers = layers;
    Parallel parallel;
    parallel.pipeline_model_parallel_size = stages;
    parallel.virtual_pipeline_model_parallel_size = chunks;
    parallel.num_layers_in_first_pipeline_stage = first;
    parallel.num_layers_in_last_pipeline_stage = last;
    parallel.account_for_embedding_in_pipeline_split = embedding;
    parallel.account_for_loss_in_pipeline_split = head;
    parallel.pipeline_model_parallel_layout = layout;
    return model_chunks(model, parallel);
  }
};

}  // namespace

TEST_CASE("layers are shared among stages and chunks", "[layout]") {
  const std::pair<Split, const char*> kSplits[] = {
      {{4}, "E4L"},
      {{8, 4}, "E2|2|2|2L"},
      // Chunk c of stage s is model chunk c · stages + s.
      {{8, 2, 2}, "E2|2|2|2L"},
      {{12, 2, 3}, "E2|2|2|2|2|2L"},
      {{7, 3, 1, 3}, "E3|2|2L"},
      {{7, 3, 1, 0, 1}, "E3|3|1L"},
      {{10, 4, 1, 1, 3}, "E1|3|3|3L"},
      {{8, 2, 1, 3, 5}, "E3|5L"},
      {{10, 2, 2, 4, 6}, "E2|3|2|3L"},
      // The embedding or the head counts as a layer.
      {{7, 4, 1, 0, 0, true}, "E1|2|2|2L"},
      {{7, 4, 1, 0, 0, false, true}, "E2|2|2|1L"},
      {{6, 4, 1, 0, 0, true, true}, "E1|2|2|1L"},
      {{7, 2, 2, 0, 0, true}, "E1|2|2|2L"},
      {{6, 2, 2, 0, 0, true, true}, "E1|2|2|1L"},
      {{2, 2, 2, 0, 0, true, true}, "E0|1|1|0L"},
      {{6, 3, 1, 0, 0, false, false, "E|tttttt|L"}, "E0|6|0L"},
      {{6, 2, 2, 0, 0, false, false, "Et|tt|t|ttL"}, "E1|2|1|2L"},
  };
  for (const auto& [split, expected] : kSplits) CHECK(text_of(split.run()) == expected);
}

TEST_CASE("the first and the last chunk alone have embedding and head", "[layout]") {
  const std::vector<ModelChunk> chunks = Split{12, 3, 2}.run();
  REQUIRE(chunks.size() == 6);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    CHECK(chunks[c].has_embedding == (c == 0));
    CHECK(chunks[c].has_head == (c == 5));
  }
}

TEST_CASE("layers that cannot be shared are refused, naming the key", "[layout]") {
  const std::pair<Split, const char*> kSplits[] = {
      {{7, 2}, "pipeline_model_parallel_size: expected the remaining layers 7 to divide by 2"},
      {{8, 4, 1, 3}, "pipeline_model_parallel_size: expected the remaining layers 5 to divide by 3"},
      {{6, 2, 2}, "pipeline_model_parallel_size: expected the layers of a stage 3 to divide by 2"},
      {{8, 2, 1, 3, 4}, "num_layers_in_first_pipeline_stage: expected all 8 layers on the stages given, got 7"},
      {{20, 1, 1, 0, 1}, "num_layers_in_last_pipeline_stage: expected all 20 layers on the stages given, got 1"},
      {{8, 1, 1, 3, 4}, "num_layers_in_last_pipeline_stage: expected at least 2 stages, got 1"},
      {{2, 3, 1, 2, 3}, "num_layers_in_first_pipeline_stage: expected at most 2 layers on the stages given, got 5"},
      {{4, 3, 1, 2, 2}, "pipeline_model_parallel_size: expected at least one layer for every model chunk"},
      {{6, 2, 1, 0, 0, false, false, "Ettt|tttt|L"}, "pipeline_model_parallel_layout: expected 2 chunks"},
      {{6, 2, 1, 0, 0, false, false, "Ettt|ttttL"}, "pipeline_model_parallel_layout: expected 6 layers, got 7"},
      {{2, 3, 1, 0, 0, false, false, "Et||tL"}, "pipeline_model_parallel_layout: expected something in every chunk"},
  };
  for (const auto& [split, expected] : kSplits) {
    INFO(expected);
    const Split& refused = split;
    CHECK_THAT(error_of([&] { refused.run(); }), Catch::StartsWith(expected));
  }
}

TEST_CASE("the grammar of pipeline_model_parallel_layout", "[layout]") {
  const std::pair<const char*, const char*> kLayouts[] = {
      {"EL", "E0L"},
      {"EttL", "E2L"},
      {"Et|tL", "E1|1L"},
      {"E t , t | t L", "E2|1L"},
      {"Et*3|(tt|)*2tL", "E3|2|2|1L"},
      {"E(t|)*4L", "E1|1|1|1|0L"},
      {"E((t*2|)*2t|)*2L", "E2|2|1|2|2|1|0L"},
      {"E|t*12|L", "E0|12|0L"},
      {"Et*0tL", "E1L"},
      {"E()L", "E0L"},
  };
  for (const auto& [layout, expected] : kLayouts) {
    INFO(layout);
    CHECK(text_of(parse_layout(layout)) == expected);
  }
}

TEST_CASE("a layout that is none is refused, naming the character", "[layout]") {
  const std::pair<const char*, const char*> kLayouts[] = {
      {"", "E at the beginning"},
      {"tL", "E at the beginning"},
      {"tEL", "one E, at the beginning"},
      {"E|EL", "one E, at the beginning"},
      {"EEL", "one E, at the beginning"},
      {"Et", "L at the end"},
      {"EL|t", "L at the end"},
      {"ELt", "one L, at the end"},
      {"Et*L", "a number after * at character 4"},
      {"Et*9999999999999999999999|L", "at most 2^20 repetitions"},
      {"E(t*1000000)*1000000L", "at most 2^20 layers and bars"},
      {"E(tL", "a closing parenthesis at the end"},
      {"Et)L", "an opening parenthesis before the one at character 3"},
      {"Ex", "at character 2, got 'x'"},
      {"E t d", "at character 5, got 'd'"},
  };
  for (const auto& [layout, expected] : kLayouts) {
    INFO(layout);
    const std::string text = layout;
    CHECK_THAT(error_of([&] { parse_layout(text); }),
               Catch::StartsWith("pipeline_model_parallel_layout: expected ") && Catch::Contains(expected));
  }
  CHECK_THAT(error_of([] { parse_layout("E" + std::string(100, '(') + std::string(100, ')') + "L"); }),
             Catch::Contains("at most 64 nested parentheses"));
}

}  // namespace stretto
