#include "trace/sqlite_file.hpp"

#include <sqlite3.h>

#include <cctype>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/toml.hpp"

namespace stretto::trace {
namespace {

constexpr int kInstructionsBetweenLooks = 1000;
constexpr const char* kSlowReport = "the file is damaged or was made to be slow; export the report again";

std::uint64_t bytes_of(const std::string& path) {
  std::error_code problem;
  const auto bytes = std::filesystem::file_size(path, problem);
  return problem ? 0 : bytes;
}

// Returns the URI of a file that nobody changes. Every other byte than letters, digits and a few signs is encoded.
std::string uri_of(const std::string& path) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string uri = "file://";
  for (const char c : std::filesystem::absolute(path).string()) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '/' || c == '.' || c == '-' || c == '_')
      uri += c;
    else
      uri += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return uri + "?immutable=1";
}

// Refuses a database that may have rows in another file.
void require_whole(const std::string& path) {
  constexpr std::uint64_t kHeaderBytes = 32;  // of a -wal, without a row
  const struct {
    const char* end;
    std::uint64_t empty_bytes;
  } companions[] = {{"-wal", kHeaderBytes}, {"-journal", 0}};
  for (const auto& [end, empty_bytes] : companions)
    if (bytes_of(path + end) > empty_bytes)
      throw input_error(path + ": the newest rows may be in " + path + end +
                        " and not in this file; close the program that writes it, or copy both and run `sqlite3 COPY "
                        "'PRAGMA wal_checkpoint(TRUNCATE)'`");
}

}  // namespace

std::int64_t SqliteRow::number(int column) const { return sqlite3_column_int64(statement_, column); }

std::string SqliteRow::text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_, column);
  return text ? reinterpret_cast<const char*>(text) : "";
}

SqliteFile::SqliteFile(const std::string& path)
    : path_(path),
      budget_(path, BudgetLimits::in_proportion(bytes_of(path), kSlowReport)),
      database_(nullptr, sqlite3_close) {
  require_whole(path);
  constexpr sqlite3_int64 kMostHeapBytes = sqlite3_int64{4} << 30;  // of all databases of the process
  constexpr int kLongestValue = 1 << 20, kLongestSql = 1 << 16, kMostColumns = 200;
  sqlite3_hard_heap_limit64(kMostHeapBytes);
  sqlite3* opened = nullptr;
  const int result = sqlite3_open_v2(uri_of(path).c_str(), &opened,
                                     SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  database_.reset(opened);
  if (result != SQLITE_OK) fail();
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  for (const auto& [limit, most] : {std::pair{SQLITE_LIMIT_LENGTH, kLongestValue},
                                    {SQLITE_LIMIT_SQL_LENGTH, kLongestSql},
                                    {SQLITE_LIMIT_COLUMN, kMostColumns},
                                    {SQLITE_LIMIT_EXPR_DEPTH, 20},
                                    {SQLITE_LIMIT_COMPOUND_SELECT, 3},
                                    {SQLITE_LIMIT_VDBE_OP, 25000},
                                    {SQLITE_LIMIT_FUNCTION_ARG, 8},
                                    {SQLITE_LIMIT_ATTACHED, 0},
                                    {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50},
                                    {SQLITE_LIMIT_VARIABLE_NUMBER, 10},
                                    {SQLITE_LIMIT_TRIGGER_DEPTH, 10},
                                    {SQLITE_LIMIT_WORKER_THREADS, 0}})
    sqlite3_limit(opened, limit, most);
  sqlite3_progress_handler(opened, kInstructionsBetweenLooks, look_at_work, this);
  for (const char* pragma : {"PRAGMA mmap_size=0", "PRAGMA cell_size_check=ON", "PRAGMA temp_store=MEMORY"})
    query(pragma, [](const SqliteRow&) {});
}

std::set<std::string> SqliteFile::columns(const std::string& table) {
  // Tables have a page in the file; views and virtual tables have none.
  bool is_there = false, is_table = true;
  query("SELECT type = 'table' AND rootpage > 0 FROM sqlite_schema WHERE lower(name) = lower('" + table +
            "') AND type IN ('table', 'view')",
        [&](const SqliteRow& row) {
          is_there = true;
          is_table = is_table && row.number(0) == 1;
        });
  if (!is_there) return {};
  if (!is_table)
    throw input_error(path_ + ": " + table +
                      ": expected a table with rows, got a view, which computes them; export the report again");
  std::set<std::string> names;
  query("SELECT name, hidden FROM pragma_table_xinfo('" + table + "')", [&](const SqliteRow& row) {
    if (row.number(1) != 0)
      throw input_error(path_ + ": " + table + ": column " + in_quotes(row.text(0)) +
                        ": expected values, got an expression that computes them; export the report again");
    names.insert(row.text(0));
  });
  return names;
}

void SqliteFile::query(const std::string& sql, const std::function<void(const SqliteRow&)>& use) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) fail();
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owned(statement, sqlite3_finalize);
  int result = SQLITE_ROW;
  while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
    budget_.add_row();
    use(SqliteRow(statement));
  }
  if (result != SQLITE_DONE) fail();
}

// SQLite calls this function after some instructions; no exception may pass through it.
int SqliteFile::look_at_work(void* self) {
  auto& file = *static_cast<SqliteFile*>(self);
  try {
    file.budget_.look(kInstructionsBetweenLooks);
    return 0;
  } catch (const Error& error) {
    file.excess_ = error.what();
    return 1;
  }
}

void SqliteFile::fail() {
  if (!excess_.empty()) throw input_error(excess_);
  const std::string reason = printable(sqlite3_errmsg(database_.get()));
  throw input_error(path_ + ": cannot be read as SQLite: " + reason);
}

}  // namespace stretto::trace
