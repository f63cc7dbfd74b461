#include <CLI/CLI.hpp>
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "api/stretto.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/commands.hpp"
#include "draw.hpp"
#include "page/answer.hpp"
#include "temp_dir.hpp"

// The command, the library and the page give one answer to one request, and refuse it with one line.

using namespace stretto;
using nlohmann::json;
using stretto::testing::Draw;
using stretto::testing::TempDir;

namespace {

struct Asked {
  api::Request request;
  api::SimulateOptions options = {};
};

// Returns an answer without its measured times, or its error.
template <class Act>
std::string answer_of(Act act) {
  try {
    json value = json::parse(act());
    if (value.is_array()) return value.dump();
    if (value.contains("simulate")) value = json(value["simulate"]);
    if (value.contains("error")) return "error: " + printable(value["error"].get<std::string>());
    value.erase("simulate_s");
    return value.dump();
  } catch (const CLI::ParseError& error) {
    return std::string("error: ") + error.what();
  } catch (const std::exception& error) {
    return "error: " + printable(error.what());
  }
}

// Runs a command of the request in this process.
std::string by_command(void (*add)(CLI::App&), const std::string& name, const api::Request& request,
                       const std::vector<std::string>& options, const TempDir& folder) {
  return answer_of([&] {
    CLI::App app;
    add(app);
    std::vector<std::string> words = {name, request.scenario, "--json", folder.file("out.json")};
    if (!request.platform.empty()) words.insert(words.end(), {"--platform", request.platform});
    for (const std::string& one : request.set) words.insert(words.end(), {"--set", one});
    words.insert(words.end(), options.begin(), options.end());
    std::reverse(words.begin(), words.end());
    std::ostringstream printed;
    struct Redirected {
      std::streambuf* was;
      ~Redirected() { std::cout.rdbuf(was); }
    } const redirected{std::cout.rdbuf(printed.rdbuf())};
    app.parse(words);
    std::ifstream file(folder.file("out.json"));
    return std::string(std::istreambuf_iterator<char>(file), {});
  });
}

std::string by_command(const Asked& asked, const TempDir& folder) {
  std::vector<std::string> options = {"--engine", asked.options.engine};
  if (asked.options.backbone_GBps != 0)
    options.insert(options.end(), {"--backbone-GBps", std::to_string(asked.options.backbone_GBps)});
  if (asked.options.modes) options.emplace_back("--modes");
  if (asked.options.limits) options.emplace_back("--limits");
  if (asked.options.fit) options.emplace_back("--fit");
  return by_command(cli::add_simulate, "simulate", asked.request, options, folder);
}

std::string by_library(const Asked& asked) {
  return answer_of([&] { return api::simulate(asked.request, asked.options); });
}

// The page has no options but limits.
bool page_has(const Asked& asked) {
  return !asked.options.modes && !asked.options.fit && asked.options.engine == "fluid" &&
         asked.options.backbone_GBps == 0;
}
// Returns `key` of the page's answer.
std::string by_page(const std::string& what, const api::Request& request, const char* key) {
  return answer_of([&] {
    const json answer = json::parse(page::answer(json{
        {"what", what},
        {"scenario", request.scenario},
        {"platform", request.platform},
        {"set", request.set},
        {"with_interval", true}}.dump()));
    return answer.contains("error") ? answer.dump() : json{{key, answer[key]}}.dump();
  });
}

// Returns a scenario that ships, on a platform that ships or does not exist, with up to three keys; some of the keys
// are wrong.
Asked drawn(Draw& draw) {
  Asked asked;
  asked.request.scenario = draw.one_of({"gpt2-124m", "llama3-8b", "llama3-8b", "llama3-8b", "llama3-8b",
                                        "qwen3-30b-a3b", "mixtral-8x7b", "llama3-8b.", "nowhere.toml"});
  asked.request.platform = draw.one_of({"", "h100-sxm", "h100-sxm", "b200-sxm", "gb200-nvl72", "a100-80gb", "h100"});
  for (std::int64_t keys = draw.between(0, 3); keys > 0; --keys)
    asked.request.set.emplace_back(draw.one_of({"tp=2",
                                                "tp=4",
                                                "parallel.pipeline_model_parallel_size=2",
                                                "pp=4",
                                                "vp=2",
                                                "cp=2",
                                                "mbs=2",
                                                "mbs=8",
                                                "parallel.data_parallel_size=2",
                                                "training.global_batch_size=64",
                                                "training.global_batch_size=12",
                                                "model.num_layers=8",
                                                "model.seq_length=2048",
                                                "training.recompute_granularity=full",
                                                "sequence_parallel=true",
                                                "training.fp8_format=hybrid",
                                                "use_distributed_optimizer=false",
                                                "overlap.overlap_param_gather=false",
                                                "overlap.tp_comm_overlap=true",
                                                "tp_comm_overlap_rs_dgrad=true",
                                                "overlap_grad_reduce=false",
                                                "pipeline_schedule=dualpipev",
                                                "data_parallel_sharding_strategy=optim_grads_params",
                                                "ep=8",
                                                "run.tokens=1e12",
                                                "run.gpu_mtbf_hours=50000",
                                                "run.slow_ranks=[3]",
                                                "training.lr=high",
                                                "overlap.tp_comm=true",
                                                "model.layers=3",
                                                "parallel.tp",
                                                "no.such=1"}));
  asked.options.limits = draw.between(0, 19) == 0;
  asked.options.modes = draw.between(0, 11) == 0;
  asked.options.fit = draw.between(0, 19) == 0;
  if (draw.between(0, 9) == 0) asked.options.backbone_GBps = draw.one_of({25., -1.});
  if (draw.between(0, 7) == 0) asked.options.engine = "simgrid";
  return asked;
}

}  // namespace

TEST_CASE("the command, the library and the page give one answer", "[doors]") {
  const TempDir folder;
  std::vector<Asked> all = {
      {{"gpt2-124m"}, {.limits = true}},
      {{"llama3-8b"}, {.modes = true, .fit = true}},
      {{"llama3-8b", {"model.num_layers=4"}}, {.engine = "simgrid", .limits = true}},  // limits need the fluid network
      {{"llama3-8b", {"mbs=16"}, "h100-sxm"}, {.fit = true}},
      {{"deepseek-v3-gb200"}},
      {{"llama2-70b", {"run.tokens=1e12"}, "h200-sxm"}},
      {{folder.write("text.toml", "[model]\npreset = \"gpt2-124m\"\n[training]\ndata = \"absent.bin\"\n"),
        {},
        "h100-sxm"}},
      {{std::string(5000, 'x')}},
      {{"gpt2-124m", {}, std::string(5000, 'x')}},
  };
  Draw draw(49);
  while (all.size() < 200) all.push_back(drawn(draw));
  std::size_t answered = 0, refused = 0, of_page = 0;
  for (const Asked& asked : all) {
    const std::string library = by_library(asked), command = by_command(asked, folder);
    ++(library.starts_with("error: ") ? refused : answered);
    CAPTURE(asked.request.scenario.substr(0, 80), asked.request.platform.substr(0, 80), asked.request.set,
            asked.options.engine, asked.options.backbone_GBps, asked.options.modes, asked.options.limits,
            asked.options.fit);
    CHECK(command == library);
    if (!page_has(asked)) continue;
    ++of_page;
    CHECK(by_page(asked.options.limits ? "limits" : "step", asked.request, "simulate") == library);
  }
  CHECK(answered > 50);
  CHECK(refused > 60);
  CHECK(of_page > 80);
}

TEST_CASE("the command, the library and the page have one schedule and its gates", "[doors]") {
  const TempDir folder;
  Draw draw(50);
  for (int i = 0; i < 30; ++i) {
    api::Request request = drawn(draw).request;
    request.set.emplace_back("model.num_layers=2");
    CAPTURE(request.scenario, request.platform, request.set);
    const std::string gates = answer_of([&] { return api::gates(request); });
    CHECK(by_command(cli::add_show, "show", request, {"--gates"}, folder) == gates);
    // The page needs a platform; the schedule none.
    if (const std::string of_page = by_page("step", request, "gates"); of_page.starts_with("{"))
      CHECK(of_page == gates);
    CHECK(by_command(cli::add_show, "show", request, {}, folder) == answer_of([&] { return api::show(request); }));
  }
}

TEST_CASE("the scenario that the page writes has the page's answer", "[doors]") {
  const TempDir folder;
  for (const api::Request& request : std::vector<api::Request>{
           {"llama3-8b", {"tp=4", "run.tokens=1e12"}, "b200-sxm"},
           // The file's recompute_modules are not of this granularity.
           {"qwen3-next-like", {"training.recompute_granularity=full", "training.recompute_method=uniform"}}}) {
    CAPTURE(request.scenario, request.set);
    const json texts = json::parse(page::answer(
        json{{"what", "texts"}, {"scenario", request.scenario}, {"platform", request.platform}, {"set", request.set}}
            .dump()));
    const std::string file = folder.write("written.toml", texts.at("toml"));
    CHECK(by_page("step", {file}, "simulate") == by_page("step", request, "simulate"));
  }
}

TEST_CASE("the command and the library search the same points and refuse the same axes", "[doors]") {
  const TempDir folder;
  struct Swept {
    api::Request request;
    std::vector<std::string> over;
  };
  const std::vector<Swept> all = {
      {{"llama3-8b", {"model.num_layers=4"}}, {"tp=1,2,3", "mbs=1,2"}},
      {{"llama3-8b", {"model.num_layers=4"}}, {"platform=h100-sxm,b200-sxm", "mbs=1,2"}},
      {{"llama3-8b", {"tp=4"}}, {"tp=1,2"}},                             // the sweep varies it
      {{"llama3-8b", {"model.num_layers=4", "pp=3"}}, {"pp=1,2"}},       // the scenario as it is cannot be read
      {{"llama3-8b", {}, "a100-80gb"}, {"platform=h100-sxm,b200-sxm"}},  // no value of the axis
      {{"llama3-8b", {"run.slow_compute=2"}}, {"tp=1,2"}},               // [run] needs another key
      {{"llama3-8b"}, {"platform=h100-sxm,h1000"}},
      {{"llama3-8b"}, {"tpp=1"}},
  };
  for (const auto& [request, over] : all) {
    CAPTURE(request.set, request.platform, over);
    std::vector<std::string> options = {"--all", "--best", "1"};
    for (const std::string& one : over) options.insert(options.end(), {"--over", one});
    const std::string library = answer_of([&] {
      api::Sweep sweep(request, over, 1, true);
      json points = json::array();
      for (std::string point = sweep.next(); !point.empty(); point = sweep.next()) points.push_back(json::parse(point));
      std::sort(points.begin(), points.end(), [](const json& a, const json& b) { return a["point"] < b["point"]; });
      return points.dump();
    });
    std::string command = by_command(cli::add_sweep, "sweep", request, options, folder);
    if (command.starts_with("{")) {
      json points = json::parse(command)["points"];
      std::sort(points.begin(), points.end(), [](const json& a, const json& b) { return a["point"] < b["point"]; });
      command = points.dump();
    }
    CHECK(command == library);
  }
}
