#include <sqlite3.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"
#include "trace/chrome_json.hpp"
#include "trace/kineto.hpp"
#include "trace/shapes.hpp"
#include "trace/trace.hpp"

namespace stretto::trace {
namespace {

using Catch::Matchers::Contains;
using stretto::testing::message_of;
using stretto::testing::TempDir;

const std::string kTrace = R"json({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
"distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8, "pg_config": [{"pg_name": "0", "rank": 9}]},
"traceEvents": [
{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python3"}},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 1740461679479700.5, "dur": 900},
{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 2, "ts": 1740461679479710, "dur": 20,
 "args": {"External id": 7, "Input Dims": [[64], [128, 32], [32, 64], [], []], "Input type": ["float", "float"]}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 1740461679479712.655, "dur": 3.25, "args": {"correlation": 41}},
{"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x128_tn", "pid": 0, "tid": 7, "ts": 1740461679479720.125, "dur": 30.5,
 "args": {"stream": 7, "device": 0, "correlation": 41, "blocks per SM": 0.5, "grid": [1, 2, 3]}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic(x)", "pid": 0, "tid": 20, "ts": 1740461679479730, "dur": 10,
 "args": {"stream": 20, "device": 0, "correlation": 42, "Collective name": "_allgather_base", "In msg nelems": 1000,
  "Out msg nelems": 8000, "Group size": 8, "dtype": "BFloat16", "Process Group Name": "3"}},
{"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 1, "cat": "fwdbwd", "name": "fwdbwd"},
{"ph": "f", "id": 1, "pid": 1, "tid": 2, "ts": 2, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}
], "traceName": "x.json"})json";

std::string gzipped(const std::string& text) {
  const TempDir folder;
  const std::string path = folder.file("x.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void check(const TraceFile& file) {
  CHECK(file.origin == Origin::kineto);
  REQUIRE(file.sections.size() == 1);
  REQUIRE(file.sections[0].ranks.size() == 1);
  const RankTrace& trace = file.sections[0].ranks[0];
  CHECK(trace.rank == 5);
  CHECK(trace.says_rank);
  CHECK(trace.ranks == 8);
  CHECK(trace.device == "NVIDIA H100");
  REQUIRE(trace.kernels.size() == 2);
  const Kernel &gemm = trace.kernels[0], &gather = trace.kernels[1];
  CHECK(trace.name_of(gemm) == "ampere_sgemm_128x128_tn");
  CHECK(gemm.cls == KernelClass::gemm);
  CHECK(gemm.length() == 30'500'000);
  CHECK(gemm.start - gemm.launched == 7'470'000);  // picoseconds are exact
  CHECK(gemm.side == Side::unknown);               // one thread launches all kernels
  CHECK(trace.streams[gemm.stream].name == "stream 7");
  const auto product = product_of(trace, gemm);
  REQUIRE(product);
  CHECK(product->m == 128);
  CHECK(product->n == 64);
  CHECK(product->k == 32);
  CHECK(product->element_bytes == 4);
  CHECK(gather.cls == KernelClass::all_gather);  // by its arguments, whatever its name
  CHECK(gather.launched == kNoTime);
  const Message& message = trace.messages[static_cast<std::size_t>(gather.message)];
  CHECK(message.in_elements == 1000);
  CHECK(message.out_elements == 8000);
  CHECK(message.group_size == 8);
  CHECK(message.element_bytes == 2);
  CHECK(message.group == "3");
  REQUIRE(trace.marks.size() == 1);
  CHECK(gemm.start - trace.marks[0].begin == 19'625'000);
}

// A report of Nsight Systems with two processes.
void write_report(const std::string& path, bool has_kernels = true) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  std::string sql = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);";
  if (has_kernels)
    sql += R"(
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,
  globalPid INT, demangledName INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
INSERT INTO StringIds VALUES (1, 'ampere_sgemm_128x128_tn'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)'), (3, 'iteration 4');
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 0, 1, 7, 11, 16777216, 1, 1), (2500, 2900, 0, 1, 20, 12, 16777216, 2, 2),
  (1200, 3300, 1, 1, 7, 11, 33554432, 1, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (100, 150, 0, 7, 10, 16777216, 8);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (400, 500, 16777217, 11, 1), (900, 950, 33554433, 11, 1);
INSERT INTO NVTX_EVENTS VALUES (90, 4000, 59, NULL, 3, 16777217), (95, 99, 59, 'forward', NULL, 16777217);)";
  REQUIRE(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(database);
}

}  // namespace

TEST_CASE("a trace of PyTorch's profiler is read, compressed or not", "[trace]") {
  const TempDir folder;
  check(read_trace(folder.write("trace.json", kTrace)));
  check(read_trace(folder.write("trace.json.gz", gzipped(kTrace))));
  check(read_trace(folder.write("two.json.gz", gzipped(kTrace.substr(0, 700)) + gzipped(kTrace.substr(700)))));
  // An array of events is a trace, too; its rank is that of the name.
  const std::size_t begin = kTrace.find('[', kTrace.find("traceEvents")), end = kTrace.rfind("], \"traceName\"");
  const TraceFile file = read_trace(folder.write("job-rank_12.json", kTrace.substr(begin, end + 1 - begin)));
  CHECK(file.sections[0].ranks[0].rank == 12);
}

TEST_CASE("bad traces are one clear error", "[trace]") {
  const TempDir folder;
  const auto error = [&](const std::string& bytes) {
    const std::string path = folder.write("bad", bytes);
    const std::string message = message_of([&] { read_trace(path); });
    CHECK_THAT(message, Contains("bad: ") && !Contains("\n"));
    return message;
  };
  CHECK_THAT(error(""), Contains("is empty"));
  for (const std::string length : {"-30.5", "\"long\"", "1e300"}) {
    std::string text = kTrace;
    text.replace(text.find("30.5"), 4, length);
    CHECK_THAT(error(text), Contains("ampere_sgemm_128x128_tn") && Contains("\"dur\""));
  }
  for (const std::size_t size : {kTrace.size() / 4, kTrace.size() / 2, kTrace.size() - 1})
    CHECK_THAT(error(kTrace.substr(0, size)), Contains("JSON ends in the middle"));
  CHECK_THAT(error("not JSON"), Contains("expected JSON"));
  CHECK_THAT(error(kTrace + "{"), Contains("expected JSON"));
  CHECK_THAT(error("{\"a\": 1}"), Contains("traceEvents"));
  CHECK_THAT(error("{\"traceEvents\": []}"), Contains("has no kernels"));
  const std::string packed = gzipped(kTrace);
  CHECK_THAT(error(packed.substr(0, packed.size() / 2)), Contains("gzip ends in the middle"));
  std::string damaged = packed;
  for (std::size_t i = packed.size() / 2; i < packed.size() / 2 + 8; ++i) damaged[i] = char(damaged[i] ^ 0x55);
  CHECK_THAT(error(damaged), Contains("gzip is damaged") || Contains("expected JSON"));
  CHECK_THAT(error(std::string("SQLite format 3\0 and no more", 28)), Contains("SQLite"));
  CHECK_THAT(message_of([&] { read_trace(folder.file("absent.json")); }), Contains("absent.json"));
  CHECK_THAT(message_of([&] { trace_files(folder.str()); }), Contains("got none"));
}

TEST_CASE("a report of Nsight Systems is read by rank", "[trace]") {
  const TempDir folder;
  const std::string path = folder.file("report.sqlite");
  write_report(path);
  const TraceFile file = read_trace(path);
  CHECK(file.origin == Origin::nsight);
  REQUIRE(file.sections[0].ranks.size() == 2);
  const RankTrace &first = file.sections[0].ranks[0], &second = file.sections[0].ranks[1];
  REQUIRE(first.kernels.size() == 3);
  CHECK(first.kernels[0].cls == KernelClass::fill);
  CHECK(first.kernels[1].length() == 2'000'000);
  CHECK(first.kernels[1].start - first.kernels[1].launched == 600'000);
  CHECK(first.kernels[2].cls == KernelClass::all_reduce);
  CHECK(first.marks.size() == 1);
  CHECK(first.marks[0].name == "iteration 4");
  CHECK(second.rank == 1);
  REQUIRE(second.kernels.size() == 1);
  CHECK(second.kernels[0].start - second.kernels[0].launched == 300'000);  // correlations are those of a process
  CHECK(second.marks.empty());
  const std::string empty = folder.file("empty.sqlite");
  write_report(empty, false);
  CHECK_THAT(message_of([&] { read_trace(empty); }), Contains("CUPTI_ACTIVITY_KIND_KERNEL"));
}

TEST_CASE("a report that computes its rows, or has rows elsewhere, is refused, and no file is written next to it",
          "[trace]") {
  const TempDir folder;
  const std::string path = folder.file("a?b#c %.sqlite");
  write_report(path);
  const auto execute = [&](const std::string& sql) {
    sqlite3* database = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
    CHECK(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    return database;
  };
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder.str()), std::filesystem::directory_iterator());
  };
  // The rows of an open database in this mode are in a second file, until someone moves them.
  sqlite3* const open = execute("PRAGMA journal_mode=WAL; INSERT INTO StringIds VALUES (4, 'x');");
  CHECK_THAT(message_of([&] { read_trace(path); }), Contains("the newest rows may be in") && Contains("-wal"));
  sqlite3_close(open);
  CHECK(files() == 1);
  CHECK(read_trace(path).sections[0].ranks.size() == 2);
  CHECK(files() == 1);
  const std::string endless =
      " AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT n AS start, n+1 AS "
      "end, 59 AS eventType, 'x' AS text, 0 AS globalTid FROM r WHERE n<0;";
  sqlite3_close(execute("DROP TABLE NVTX_EVENTS; CREATE VIEW NVTX_EVENTS" + endless));
  CHECK_THAT(message_of([&] { read_trace(path); }), Contains("NVTX_EVENTS: expected a table with rows, got a view"));
  sqlite3_close(
      execute("DROP VIEW NVTX_EVENTS; CREATE TABLE NVTX_EVENTS (start INT, end INT, globalTid INT, text TEXT AS "
              "(hex(zeroblob(400000000))));"));
  CHECK_THAT(message_of([&] { read_trace(path); }), Contains("NVTX_EVENTS: column \"text\": expected values"));
}

TEST_CASE("a name of many kernels is read once, however long it is", "[trace]") {
  const TempDir folder;
  const std::string path = folder.file("long.sqlite");
  write_report(path);
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  const std::string sql =
      "UPDATE StringIds SET value = '" + std::string(900'000, 'x') +
      "' WHERE id = 1; WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 20000) INSERT INTO "
      "CUPTI_ACTIVITY_KIND_KERNEL SELECT 5000 + n, 5001 + n, 0, 1, 7, 0, 16777216, 1, 1 FROM r;";
  REQUIRE(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(database);
  const TraceFile file = read_trace(path);
  CHECK(file.sections[0].ranks[0].kernels.size() == 20'003);
  CHECK(file.sections[0].ranks[0].names.size() == 3);
}

TEST_CASE("a small file that unpacks to a large one is refused before it is read", "[trace]") {
  const TempDir folder;
  const auto refusal = [&](const std::string& begin, const std::string& piece, int pieces) {
    std::string text = begin;
    for (int i = 0; i < pieces; ++i) text += piece;
    return message_of([&] { read_trace(folder.write("x.json.gz", gzipped(text + "]}"))); });
  };
  const std::string mebibyte(1 << 20, ' ');
  CHECK_THAT(refusal("{\"traceEvents\":[", mebibyte, 20), Contains("values of at most 16 MiB"));
  CHECK_THAT(refusal("{\"traceEvents\":[\"", std::string(1 << 20, 'a'), 20), Contains("values of at most 16 MiB"));
  CHECK_THAT(refusal("{\"traceEvents\":[", "[[[[[[[[[[", 100), Contains("inside each other at most 64 times"));
  CHECK_THAT(refusal("{\"traceEvents\":[{\"args\":{\"Input Dims\":[[", "1,", 100), Contains("at most 64 sizes"));
  CHECK_THAT(
      refusal("{\"traceEvents\":[", "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\",\"ts\":1,\"dur\":1},", 1'500'000),
      Contains("reading it takes more than"));
}

TEST_CASE("marks of steps and times as they are written", "[trace]") {
  for (const char* name : {"ProfilerStep#12", "iteration 3", "step_7", "Step 8", "iter10"}) CHECK(marks_step(name));
  for (const char* name : {"forward", "12", "optimizer step", "step 3 of 7", "layer 3"}) CHECK(!marks_step(name));
  const WrittenTime time = written_time("1740461679479712.655");
  CHECK(time.us == 1740461679479712);
  CHECK(time.ps == 655'000);
  CHECK(written_time("-0.25").us == -1);
  CHECK(written_time("-0.25").ps == 750'000);
  CHECK(written_time("1.5e3").us == 1500);
  for (const char* text : {"", "x", "1x", "99999999999999999999", "1e400"}) CHECK(!written_time(text).is_there);
}

}  // namespace stretto::trace
