#include "calibrate/import/measurements.hpp"

#include <catch2/catch.hpp>

#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::calibrate {
namespace {

using testing::message_of;

// Returns the ranks of `hosts` with `of_host` GPUs each, as nccl-tests prints them.
std::string ranks(int hosts, int of_host, const std::string& prefix = "") {
  std::string text = prefix + "# Using devices\n";
  for (int rank = 0; rank < hosts * of_host; ++rank)
    text += prefix + "#  Rank " + std::to_string(rank) + " Group  0 Pid   " + std::to_string(100 + rank) +
            " on     host-" + std::to_string(rank / of_host) + " device  " + std::to_string(rank % of_host) +
            " [0000:19:00] NVIDIA H100 80GB HBM3\n";
  return text;
}

const char* const kHeader =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  "
    "(GB/s)       \n";

Measurements read(const std::string& text, const ImportFile& said = {}) { return read_nccl_text(text, "log", said); }

void check(const sim::CollectiveTime& time, CollectiveKind kind, std::int64_t gpus, std::int64_t nodes, double bytes,
           double us) {
  CHECK(time.kind == kind);
  CHECK(time.span.members == gpus);
  CHECK(time.span.nodes == nodes);
  CHECK(time.bytes == bytes);
  CHECK(time.us == Approx(us));
}

}  // namespace

TEST_CASE("nccl-tests: operation, ranks and hosts are those of the file, times out of place", "[import]") {
  const Measurements found = read(
      "# nccl-tests version 2.17.1 nccl-headers=22807 nccl-library=22807\n# Collective test starting: "
      "all_reduce_perf\n# "
      "nThread 1 nGpus 1 minBytes 8 maxBytes 8388608 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1\n" +
      ranks(2, 4) + kHeader +
      "           0             0     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00   "
      "   "
      "0\n     1048576        262144     float     sum      -1   100.00   10.49   18.35      0    99.00   10.59   "
      "18.53   "
      "   0\n     8388608       2097152     float     sum      -1    1.1e+03    7.63   13.35      0    1e3    8.39   "
      "14.68      0\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 70.742\n# Collective test concluded: "
      "all_reduce_perf\n");
  REQUIRE(found.collectives.size() == 2);
  check(found.collectives[0], CollectiveKind::all_reduce, 8, 2, 1048576, 100);
  check(found.collectives[1], CollectiveKind::all_reduce, 8, 2, 8388608, 1100);
  CHECK(found.device == "NVIDIA H100 80GB HBM3");
  CHECK(found.notes.empty());
}

TEST_CASE("nccl-tests: runs one after another, prefixes of launchers, unchecked values", "[import]") {
  const std::string mpi = "[1,0]<stdout>:", srun = " 0: ";
  const std::string text = "$ mpirun --tag-output ./build/all_gather_perf -b 1M -c 0\n" + ranks(1, 2, mpi) + mpi +
                           kHeader + mpi +
                           "     1048576        131072      half    none      -1    50.00   20.97   10.49    N/A    "
                           "48.00   21.85   10.92    "
                           "N/A\n" +
                           mpi +
                           "137438953472   68719476736      half    none      -1  5000000   27.49   13.74    N/A  "
                           "5000000   27.49   13.74    N/A\n" +
                           "$ srun -l sendrecv_perf\n" + ranks(1, 2, srun) + srun +
                           "     1048576        131072      half    none      -1    50.00   20.97   10.49    N/A    "
                           "48.00   21.85   10.92    "
                           "N/A\n$ srun -l reduce_scatter_perf\n" +
                           ranks(2, 1, srun) + srun +
                           "     1048576        131072  bfloat16     sum      -1    60.00   17.48    8.74      0    "
                           "48.00   21.85   10.92      "
                           "0\n" +
                           srun +
                           "     1048576        131072      int8     sum      -1    60.00   17.48    8.74      0    "
                           "48.00   21.85   10.92      "
                           "0\n" +
                           srun +
                           "     2097152        131072      half     sum      -1    60.00   34.95   17.48      3    "
                           "48.00   43.69   21.85      "
                           "0\n" +
                           srun + "     4194304        262144      half     sum      -1    60.00\n";
  const Measurements found = read(text);
  REQUIRE(found.collectives.size() == 3);
  check(found.collectives[0], CollectiveKind::all_gather, 2, 1, 1048576, 50);
  check(found.collectives[1], CollectiveKind::all_gather, 2, 1, 137438953472, 5000000);
  check(found.collectives[2], CollectiveKind::reduce_scatter, 2, 2, 1048576, 60);
  CHECK(found.notes == std::vector<std::string>{"rows not used: those of sendrecv", "rows not used: those of int8",
                                                "rows not used: 1 with wrong values",
                                                "rows not used: 1 that are not whole"});
}

TEST_CASE("nccl-tests: other columns", "[import]") {
  SECTION("one group of times") {
    const Measurements found =
        read("all_gather_perf\n" + ranks(1, 2) +
             "# size count type redop root time algbw busbw #wrong\n 4096 1024 float none -1 12.5 "
             "0.33 0.16 0\n");
    check(found.collectives.at(0), CollectiveKind::all_gather, 2, 1, 4096, 12.5);
  }
  SECTION("no operation or root, errors in place of wrong values: before 2.11") {
    const Measurements found = read(
        "all_gather_perf\n# Using devices\n#   Rank  0 Pid  1 on a device  0 [0x07] Tesla V100\n#   Rank  1 Pid  2 "
        "on a device  1 [0x0a] Tesla V100\n# size count type time algbw busbw error time algbw busbw error\n 4096 "
        "1024 float 12.5 0.33 0.16 0e+00 11.5 0.36 0.18 4e-07\n");
    check(found.collectives.at(0), CollectiveKind::all_gather, 2, 1, 4096, 12.5);
    CHECK(found.device == "Tesla V100");
  }
  SECTION("nothing out of place") {
    const Measurements found = read("all_reduce_perf\n" + ranks(1, 2) + kHeader +
                                    " 4096 1024 float sum -1                                 12.5 0.33 0.33 0\n");
    check(found.collectives.at(0), CollectiveKind::all_reduce, 2, 1, 4096, 12.5);
  }
  SECTION("each iteration, and when a row was made") {
    const Measurements found = read(
        "all_reduce_perf\n" + ranks(1, 2) +
        "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min "
        "i_max i_p99 i_cv% timestamp\n 4096 1024 float sum -1 12.5 0.33 0.33 0 12 13 13 2 11.5 0.36 0.36 0 11 12 12 "
        "2 2026-01-02 03:04:05\n");
    check(found.collectives.at(0), CollectiveKind::all_reduce, 2, 1, 4096, 12.5);
  }
  SECTION("ranks that communicate concurrently with others") {
    const Measurements found = read(
        "all_reduce_perf\n# Using devices\n# Rank 0 Group 0 Pid 1 on a device 0 [1] X\n# Rank 1 Group 1 Pid 1 on a "
        "device 1 [1] X\n# Rank 2 Group 0 Pid 1 on b device 0 [1] X\n# Rank 3 Group 1 Pid 1 on b device 1 [1] X\n" +
        std::string(kHeader) + " 4096 1024 float sum -1 12.5 0.33 0.33 0 12.5 0.33 0.33 0\n");
    check(found.collectives.at(0), CollectiveKind::all_reduce, 2, 2, 4096, 12.5);
  }
}

TEST_CASE("nccl-tests: options give what a file does not say, and contradictions are errors", "[import]") {
  const std::string row = " 1048576 262144 float sum -1 100.00 10.49 18.35 0 99.00 10.59 18.53 0\n";
  check(read(row, parse_import("all_reduce@8/2=log")).collectives.at(0), CollectiveKind::all_reduce, 8, 2, 1048576,
        100);
  const auto message = [&](const std::string& text, const ImportFile& said = {}) {
    return message_of([&] { read(text, said); });
  };
  // Without any rank the ratio says the operation, and how many GPUs would give it.
  CHECK(message(row) ==
        "log:1: expected lines \"Rank 0 … on HOST device 0\" before rows, got none; busbw / algbw is that of 8 GPUs; "
        "say how many GPUs and nodes it ran on: --import @16/2=FILE");
  CHECK(
      message("all_reduce_perf\n" + row) ==
      "log:2: expected lines \"Rank 0 … on HOST device 0\" before rows, got none; busbw / algbw is that of 8 GPUs; say "
      "how many GPUs and nodes it ran on: --import @16/2=FILE");
  CHECK(message("all_reduce_perf\n" + row, parse_import("all_gather@8=log")) ==
        "log:2: expected rows of all_gather_perf, as --import says, got all_reduce_perf");
  CHECK(message(row, parse_import("all_gather@8=log")) ==
        "log:1: expected a row of all_gather, whose redop is none, got sum");
  CHECK(message(row, parse_import("reduce_scatter@8=log")) ==
        "log:1: expected busbw / algbw of 0.8750, of reduce_scatter among 8 GPUs, got 1.7493: another operation?");
  CHECK(message("no such thing\n") == "log: expected rows of nccl-tests (size, count, type, …, time), got none");
  CHECK(message("all_reduce_perf\n# size count type redop root cputime algbw busbw #wrong\n") ==
        "log:2: expected the time of the GPU, got that of the processor (-C 1)");
}

TEST_CASE("nccl-tests: without a program's name, redop, root and busbw / algbw say the operation", "[import]") {
  const auto kind_of = [](const std::string& rows, const char* said = "@8=log") {
    return read(rows, parse_import(said)).collectives.at(0).kind;
  };
  // 8 GPUs: 2 (n - 1) / n = 1.75, (n - 1) / n = 0.875.
  CHECK(kind_of(" 1048576 262144 float sum -1 100.00 10.49 18.35 0 99.00 10.59 18.53 0\n") ==
        CollectiveKind::all_reduce);
  CHECK(kind_of(" 1048576 32768 float sum -1 100.00 10.49 9.18 0 99.00 10.59 9.27 0\n") ==
        CollectiveKind::reduce_scatter);
  CHECK(kind_of(" 1048576 32768 float none -1 100.00 10.49 9.18 0 99.00 10.59 9.27 0\n") == CollectiveKind::all_gather);
  CHECK(kind_of(" 1048576 32768 float none -1 100.00 10.49 9.18 0 99.00 10.59 9.27 N/A\n") ==
        CollectiveKind::all_to_all);
  // Two runs in one file, and ranks that the file has.
  const Measurements both =
      read(ranks(1, 8) + kHeader + " 1048576 262144 float sum -1 100.00 10.49 18.35 0 99.00 10.59 18.53 0\n" +
           ranks(1, 8) + kHeader + " 1048576 32768 float sum -1 100.00 10.49 9.18 0 99.00 10.59 9.27 0\n");
  REQUIRE(both.collectives.size() == 2);
  CHECK(both.collectives[1].kind == CollectiveKind::reduce_scatter);
  const auto message = [&](const std::string& rows, const char* said) {
    return message_of([&] { read(rows, parse_import(said)); });
  };
  // A reduction to one rank, a broadcast, values that nobody counted, no ratio: each leaves it open.
  for (const char* open : {" 1048576 262144 float sum 0 100.00 10.49 10.49 0 99.00 10.59 10.59 0\n",
                           " 1048576 262144 float none 0 100.00 10.49 10.49 0 99.00 10.59 10.59 0\n",
                           " 1048576 32768 float none -1 100.00 10.49 9.18 N/A 99.00 10.59 9.27 N/A\n",
                           " 8 2 float sum -1 10.00 0.00 0.00 0 9.00 0.00 0.00 0\n"})
    CHECK(message(open, "@8=log").find("say which operation it is: --import all_reduce=FILE") != std::string::npos);
  CHECK(message(" 1048576 262144 float sum -1 100.00 10.49 12.35 0 99.00 10.59 12.53 0\n", "@8=log") ==
        "log:1: expected a program's name (all_reduce_perf, …) before its rows, got none, and busbw / algbw is of no "
        "reduction among 8 GPUs; say which operation it is: --import all_reduce=FILE");
}

TEST_CASE("nccl-tests: alltoall_perf is an all-to-all, in its own spelling and in ours", "[import]") {
  const std::string text = "# Collective test starting: alltoall_perf\n" + ranks(1, 2) + kHeader +
                           " 1048576 131072 float none -1 20.00 52.43 26.21 0 21.00 49.93 24.97 N/A\n";
  for (const char* said : {"log", "all_to_all=log", "alltoall=log", "all_to_all@2/1=log"})
    check(read(text, parse_import(said)).collectives.at(0), CollectiveKind::all_to_all, 2, 1, 1048576, 20);
  CHECK(message_of([&] { read(text, parse_import("all_gather=log")); }) ==
        "log:7: expected rows of all_gather_perf, as --import says, got alltoall_perf");
}

TEST_CASE("nccl-tests: the number of GPUs is as exact as lines of ranks and printed digits say", "[import]") {
  const std::string header = "#  Rank 1439 Group  0 Pid  21082 on node-073 device  3 [0x01] NVIDIA GB200\n";
  const std::string rows =
      "   536870912     134217728     float     sum      -1   7108.4   75.53  150.95      0   7145.8   75.13  150.16   "
      "   0\n"
      "  2147483648     536870912     float     sum      -1    14980  143.36  286.52      0    15087  142.34  284.49   "
      "   0\n";
  const auto message = [&](const std::string& text, const char* said) {
    return message_of([&] { read(text, parse_import(said)); });
  };
  CHECK(message(header + rows, "all_reduce@64/16=log") ==
        "log:2: expected 64 GPUs, as --import says, got lines \"Rank N\" of 1440 or more");
  CHECK(
      message(rows, "all_reduce@64/16=log") ==
      "log:1: expected busbw / algbw of 1.9688, of all_reduce among 64 GPUs, got 1.9985: that of 1080 to 1888 GPUs, or "
      "of another operation");
  CHECK(
      message(header + rows, "all_reduce=log").find("for each of 1440 GPUs or more, got 1; busbw / algbw is that of") !=
      std::string::npos);
  check(read(header + rows, parse_import("@1440/360=log")).collectives.at(0), CollectiveKind::all_reduce, 1440, 360,
        536870912, 7108.4);
  // A log with a line "Rank N" for every rank contradicts another number of GPUs in --import.
  CHECK(message(ranks(2, 4) + " 8 2 float sum -1 10.00 0.00 0.00 0 9.00 0.00 0.00 0\n", "all_reduce@16/2=log") ==
        "log:10: expected 16 GPUs, as --import says, got lines \"Rank N\" of 8");
}

TEST_CASE("a table says its GPU, and has rows of one", "[import]") {
  CHECK(read_gemm_csv("gpu,m,n,k,time_us\nH200 SXM,8,16,24,5\n", "g.csv").device == "H200 SXM");
  CHECK(read_collective_csv("op,gpus,bytes,time_us,device\nall_gather,2,8,1,NVIDIA GB200\n", "t.csv", {}).device ==
        "NVIDIA GB200");
  CHECK(message_of([&] { read_gemm_csv("gpu,m,n,k,time_us\nA,8,16,24,5\nB,8,16,24,5\n", "g.csv"); }) ==
        "g.csv:3: gpu: expected rows of one GPU, \"A\", got \"B\"");
}

TEST_CASE("nccl-tests: JSON", "[import]") {
  const std::string text = R"({"version":3,"args":["\/opt\/all_gather_perf","-g","2"],"nccl_version":22807,
    "config":{"nthreads":1,"ngpus":2,"devices":[{"rank":0,"group":0,"pid":1,"hostname":"a","device":0,
    "device_info":"NVIDIA H100"},{"rank":2,"group":0,"pid":1,"hostname":"b","device":0,"device_info":"NVIDIA H100"}]},
    "results":[{"size":1048576,"count":1,"type":"half","redop":"none","root":"    -1","out_of_place":{"time":50.0,
    "alg_bw":20.97,"bus_bw":15.73,"nwrong":null},"in_place":{"time":48.0,"alg_bw":21.85,"bus_bw":16.38,"nwrong":null}},
    {"size":2097152,"count":1,"type":"half","out_of_place":null,"in_place":{"time":90.0,"alg_bw":"nan","bus_bw":1}}]})";
  const Measurements found = read_nccl_json(text, "log", {});
  REQUIRE(found.collectives.size() == 2);
  check(found.collectives[0], CollectiveKind::all_gather, 4, 2, 1048576, 50);
  check(found.collectives[1], CollectiveKind::all_gather, 4, 2, 2097152, 90);
  CHECK(found.device == "NVIDIA H100");
  const auto message = [](const std::string& json) { return message_of([&] { read_nccl_json(json, "log", {}); }); };
  CHECK(message(text.substr(0, 500)).find("got no whole JSON") != std::string::npos);
  CHECK(message("{}").find("an object with \"results\", got none") != std::string::npos);
  CHECK(message(R"({"results":[{"size":1,"out_of_place":{"cpu_time":1}}]})").find("(-C 1)") != std::string::npos);
  CHECK(message(R"({"args":7,"config":[],"results":[3,{"out_of_place":{"time":"x"}}]})") != "no error");
}

TEST_CASE("tables of collectives and GEMMs", "[import]") {
  const Measurements times = read_collective_csv(
      "dtype,op,gpus,nodes,bytes,time_us\nhalf,all_gather,16,2,1024,5\nint8,all_gather,16,2,1024,7\nhalf,broadcast,8,1,"
      "1,1\n",
      "t.csv", {});
  REQUIRE(times.collectives.size() == 1);
  check(times.collectives[0], CollectiveKind::all_gather, 16, 2, 1024, 5);
  CHECK(times.notes == std::vector<std::string>{"rows not used: 1 of other operations",
                                                "rows not used: 1 of other types than half, bfloat16 and float"});
  const Measurements said = read_collective_csv("bytes,time_us\n1024,5\n", "t.csv", parse_import("all_reduce@4=t.csv"));
  check(said.collectives.at(0), CollectiveKind::all_reduce, 4, 1, 1024, 5);
  const auto message = [](const char* text) { return message_of([&] { read_collective_csv(text, "t.csv", {}); }); };
  CHECK(message("op,gpus,nodes,bytes,time_us\nall_gather,16,3,1024,5\n") ==
        "t.csv:2: nodes: expected a divisor of gpus, 16, got \"3\"");
  CHECK(message("op,gpus,bytes,time_us\nall_gather,1,1024,5\n") == "t.csv:2: gpus: expected at least 2, got \"1\"");
  CHECK(message("op,gpus,bytes,time_us\nall_gather,2.5,1024,5\n") ==
        "t.csv:2: gpus: expected a whole number above 0, got \"2.5\"");
  const Measurements gemms =
      read_gemm_csv("stack,dtype,m,n,k,time_us\na,bf16,8,16,24,5\na,fp8,8,16,24,5\na,bf16,9,16,24,5\n", "g.csv");
  REQUIRE(gemms.gemms.size() == 2);
  CHECK(gemms.gemms[0].k == 24);
  CHECK(gemms.notes.size() == 1);
}

TEST_CASE("what --import says of a file", "[import]") {
  const ImportFile all = parse_import("all_gather@16/2=logs/a=b.txt");
  CHECK(all.op == "all_gather");
  CHECK(all.gpus == 16);
  CHECK(all.nodes == 2);
  CHECK(all.path == "logs/a=b.txt");
  CHECK(parse_import("@8=a").gpus == 8);
  CHECK(parse_import("logs/run=2/a.txt").path == "logs/run=2/a.txt");
  const auto message = [](const char* text) { return message_of([&] { parse_import(text); }); };
  CHECK(message("allgather=a") ==
        "--import \"allgather=a\": expected all_gather, reduce_scatter, all_reduce or all_to_all before \"=\"; did you "
        "mean "
        "\"all_gather\"?");
  CHECK(message("@0=a").find("expected @GPUS or @GPUS/NODES before") != std::string::npos);
  CHECK(message("@8/3=a").find("as many GPUs on each node") != std::string::npos);
}

TEST_CASE("the form of a file is known from what is in it", "[import]") {
  const testing::TempDir folder;
  const auto read_file = [&](const std::string& text) {
    return read_measurements({folder.write("measured", text), "", 0, 0});
  };
  CHECK(read_file("m,n,k,time_us\n8,8,8,1\n").gemms.size() == 1);
  CHECK(read_file("op,gpus,bytes,time_us\nall_reduce,2,8,1\n").collectives.size() == 1);
  CHECK(
      read_file("\n{\"args\":[\"all_reduce_perf\"],\"config\":{\"devices\":[{},{}]},\"results\":[{\"size\":8,\"type\":"
                "\"half\",\"in_place\":{\"time\":2}}]}")
          .collectives.size() == 1);
  CHECK(read_file("all_reduce_perf\n" + ranks(1, 2) + " 8 2 float sum -1 1 0 0 0 1 0 0 0\n").file == "measured");
  CHECK(message_of([&] { read_file(""); }).find("got none") != std::string::npos);
  CHECK(message_of([&] { read_measurements({folder.file("none"), "", 0, 0}); }).find("none") != std::string::npos);
}

}  // namespace stretto::calibrate
