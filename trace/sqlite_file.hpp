#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/budget.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace stretto::trace {

// A row of a query. Absent values are 0 or "".
class SqliteRow {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}
  std::int64_t number(int column) const;
  std::string text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

// A database of others, read as https://www.sqlite.org/security.html ("Untrusted SQLite Database Files") advises: only
// plain columns of plain tables are read, so that no view, no virtual table and no expression of the file runs; the
// schema is not trusted and cannot be written; lengths, memory and work are bounded by a budget. No file is written:
// the database is opened as immutable, which makes no -wal or -shm next to it, and sorting stays in memory.
class SqliteFile {
 public:
  // Opens the file. Throws Error(input) where it is no database, and where rows are in a -wal or -journal next to it,
  // which an immutable database does not show.
  explicit SqliteFile(const std::string& path);
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // Returns the columns of a table; none where there is no such table. Throws Error(input) where the name is that of a
  // view or a virtual table, or where a column is computed.
  std::set<std::string> columns(const std::string& table);
  // Calls `use` for each row of a query of our own over tables that columns() returned. Throws Error(input) where the
  // file is damaged, and as the budget does.
  void query(const std::string& sql, const std::function<void(const SqliteRow&)>& use);

  Budget& budget() { return budget_; }

 private:
  [[noreturn]] void fail();
  static int look_at_work(void* self);

  const std::string path_;
  Budget budget_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database_;
  std::string excess_;  // why the budget has ended a query; "": it has not
};

}  // namespace stretto::trace
