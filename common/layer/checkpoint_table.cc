#include "common/layer/checkpoint_table.h"

#include <sqlite3.h>

#include <algorithm>
#include <map>
#include <memory>

namespace cofferdam::layer {
namespace {

// Layers with checkpoints are no format 2: a reader that knows only that would take the topmost
// layer for all of it.
constexpr int kFormatWithCheckpoints = 3;

constexpr const char* kTable =
    "CREATE TABLE IF NOT EXISTS checkpoint (layer INTEGER PRIMARY KEY, parent INTEGER NOT NULL,"
    " id TEXT NOT NULL, name TEXT NOT NULL, time_ns INTEGER NOT NULL)";

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

Error error_of(sqlite3* db) {
  const int number = sqlite3_errcode(db) == SQLITE_FULL ? ENOSPC : EIO;
  return Error(std::string("meta: checkpoints: ") + sqlite3_errmsg(db), number);
}

Result<Statement> prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &raw, nullptr) != SQLITE_OK) return error_of(db);
  return Statement(raw);
}

Status finish(sqlite3* db, const Statement& statement) {
  if (sqlite3_step(statement.get()) != SQLITE_DONE) return error_of(db);
  return {};
}

std::string text_at(sqlite3_stmt* row, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
  return text == nullptr ? std::string() : std::string(text);
}

Status execute(sqlite3* db, const char* sql) {
  TRY_ASSIGN(const Statement statement, prepare(db, sql));
  return finish(db, statement);
}

Status set_number(sqlite3* db, const char* key, std::int64_t value) {
  TRY_ASSIGN(const Statement statement,
             prepare(db, "INSERT OR REPLACE INTO layer (key, value) VALUES (?, ?)"));
  sqlite3_bind_text(statement.get(), 1, key, -1, SQLITE_STATIC);
  sqlite3_bind_int64(statement.get(), 2, value);
  return finish(db, statement);
}

Status insert(sqlite3* db, const Checkpoint& checkpoint) {
  TRY_ASSIGN(const Statement statement,
             prepare(db, "INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?)"));
  sqlite3_bind_int64(statement.get(), 1, checkpoint.layer);
  sqlite3_bind_int64(statement.get(), 2, checkpoint.parent);
  sqlite3_bind_text(statement.get(), 3, checkpoint.id.c_str(), -1, SQLITE_STATIC);
  sqlite3_bind_text(statement.get(), 4, checkpoint.name.c_str(), -1, SQLITE_STATIC);
  sqlite3_bind_int64(statement.get(), 5, checkpoint.time_ns);
  return finish(db, statement);
}

Status set_head(sqlite3* db, const StackHead& head) {
  TRY(set_number(db, "format", kFormatWithCheckpoints));
  TRY(set_number(db, "parent", head.parent));
  return set_number(db, "next", head.next);
}

// What `change` does, whole or not at all, and on disk.
template <typename Change>
Status in_transaction(MetaStore& meta, const Change& change) {
  TRY(execute(meta.database(), "BEGIN IMMEDIATE"));
  Status done = change();
  if (done.ok()) done = execute(meta.database(), "COMMIT");
  if (!done.ok()) {
    (void)execute(meta.database(), "ROLLBACK").ok();
    return done;
  }
  return meta.sync_always();
}

}  // namespace

Result<StackHead> CheckpointTable::head() const {
  TRY_ASSIGN(
      const Statement statement,
      prepare(meta_->database(), "SELECT key, value FROM layer WHERE key IN ('parent', 'next')"));
  StackHead head;
  int code = sqlite3_step(statement.get());
  for (; code == SQLITE_ROW; code = sqlite3_step(statement.get())) {
    const auto value = static_cast<std::uint32_t>(sqlite3_column_int64(statement.get(), 1));
    (text_at(statement.get(), 0) == "parent" ? head.parent : head.next) = value;
  }
  if (code != SQLITE_DONE) return error_of(meta_->database());
  return head;
}

Result<std::vector<Checkpoint>> CheckpointTable::chain() const {
  TRY_ASSIGN(const StackHead head, this->head());
  std::vector<Checkpoint> chain;
  if (head.parent == 0) return chain;
  std::map<std::uint32_t, Checkpoint> all;
  TRY_ASSIGN(const Statement statement,
             prepare(meta_->database(), "SELECT layer, parent, id, name, time_ns FROM checkpoint"));
  int code = sqlite3_step(statement.get());
  for (; code == SQLITE_ROW; code = sqlite3_step(statement.get())) {
    Checkpoint checkpoint;
    checkpoint.layer = static_cast<std::uint32_t>(sqlite3_column_int64(statement.get(), 0));
    checkpoint.parent = static_cast<std::uint32_t>(sqlite3_column_int64(statement.get(), 1));
    checkpoint.id = text_at(statement.get(), 2);
    checkpoint.name = text_at(statement.get(), 3);
    checkpoint.time_ns = sqlite3_column_int64(statement.get(), 4);
    all[checkpoint.layer] = std::move(checkpoint);
  }
  if (code != SQLITE_DONE) return error_of(meta_->database());
  for (std::uint32_t at = head.parent; at != 0;) {
    const auto found = all.find(at);
    if (found == all.end() || found->second.parent >= at) {
      return Error("meta: layer " + std::to_string(at) + " has no place in the stack", EIO);
    }
    at = found->second.parent;
    chain.push_back(std::move(found->second));
  }
  return chain;
}

Status CheckpointTable::add(MetaStore& meta, const Checkpoint& checkpoint) {
  sqlite3* db = meta.database();
  return in_transaction(meta, [&]() -> Status {
    TRY(execute(db, kTable));
    TRY(insert(db, checkpoint));
    return set_head(db, {checkpoint.layer, checkpoint.layer + 1});
  });
}

Status CheckpointTable::replace(MetaStore& meta, const std::vector<Checkpoint>& chain,
                                std::uint32_t used) {
  sqlite3* db = meta.database();
  TRY_ASSIGN(StackHead head, this->head());
  head.parent = chain.empty() ? 0 : chain.back().layer;
  head.next = std::max(head.next, used + 1);
  for (const Checkpoint& checkpoint : chain) head.next = std::max(head.next, checkpoint.layer + 1);
  return in_transaction(meta, [&]() -> Status {
    TRY(execute(db, kTable));
    TRY(execute(db, "DELETE FROM checkpoint"));
    for (const Checkpoint& checkpoint : chain) TRY(insert(db, checkpoint));
    return set_head(db, head);
  });
}

}  // namespace cofferdam::layer
