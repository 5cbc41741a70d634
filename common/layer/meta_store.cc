#include "common/layer/meta_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>

#include "common/base/check.h"
#include "common/layer/record_log.h"
#include "common/os/files.h"

namespace cofferdam::layer {
namespace {

constexpr std::int64_t kFormat = 2;
// The same with checkpoints (checkpoint_table.h).
constexpr std::int64_t kNewestFormat = 3;

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS layer (key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS whiteout (path BLOB PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS shown_inode (upper INTEGER PRIMARY KEY, shown INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS owner (upper INTEGER PRIMARY KEY, uid INTEGER NOT NULL,"
    " gid INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS link_group (inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL,"
    " names INTEGER NOT NULL, upper INTEGER NOT NULL, PRIMARY KEY (inode, birth_ns)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS link_name (path BLOB NOT NULL, inode INTEGER NOT NULL,"
    " birth_ns INTEGER NOT NULL, PRIMARY KEY (path, inode, birth_ns)) WITHOUT ROWID;";

class Statement final {
 public:
  Statement() = default;
  ~Statement() { sqlite3_finalize(raw_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  bool prepare(sqlite3* db, const std::string& sql) {
    return sqlite3_prepare_v3(db, sql.c_str(), static_cast<int>(sql.size()),
                              SQLITE_PREPARE_PERSISTENT, &raw_, nullptr) == SQLITE_OK;
  }
  sqlite3_stmt* get() const { return raw_; }

 private:
  sqlite3_stmt* raw_ = nullptr;
};

// Resets a statement when its use ends, so that no read transaction stays open.
class Use final {
 public:
  explicit Use(const Statement& statement) : raw_(statement.get()) {}
  ~Use() {
    sqlite3_reset(raw_);
    sqlite3_clear_bindings(raw_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Use& blob(std::string_view bytes) {
    // A null pointer would bind NULL: the root's path is an empty blob.
    sqlite3_bind_blob(raw_, ++at_, bytes.empty() ? "" : bytes.data(),
                      static_cast<int>(bytes.size()), SQLITE_STATIC);
    return *this;
  }
  Use& number(std::int64_t value) {
    sqlite3_bind_int64(raw_, ++at_, value);
    return *this;
  }
  Use& unsigned_number(std::uint64_t value) { return number(static_cast<std::int64_t>(value)); }
  int step() { return sqlite3_step(raw_); }
  sqlite3_stmt* row() const { return raw_; }

 private:
  sqlite3_stmt* raw_;
  int at_ = 0;
};

std::string blob_at(sqlite3_stmt* row, int column) {
  const void* bytes = sqlite3_column_blob(row, column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row, column));
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

std::uint64_t unsigned_at(sqlite3_stmt* row, int column) {
  return static_cast<std::uint64_t>(sqlite3_column_int64(row, column));
}

std::filesystem::path beside(std::filesystem::path meta, const char* suffix) {
  meta += suffix;
  return meta;
}

}  // namespace

struct MetaStore::Impl {
  sqlite3* db = nullptr;
  std::int64_t start_ns = 0;
  bool in_transaction = false;
  bool unsynced = true;
  std::filesystem::path file;
  std::optional<RecordLog> records;
  std::map<std::string, Statement> statements;

  ~Impl() {
    statements.clear();
    sqlite3_close(db);
  }

  Error error(std::string_view what) const {
    const int code = sqlite3_errcode(db);
    int number = EIO;
    if (code == SQLITE_FULL) number = ENOSPC;
    if (code == SQLITE_READONLY || code == SQLITE_PERM || code == SQLITE_CANTOPEN) number = EACCES;
    return Error("meta: " + std::string(what) + ": " + sqlite3_errmsg(db), number);
  }

  Status execute(const char* sql) {
    if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return error(sql);
    return {};
  }

  // The prepared statement of `sql`, made at its first use.
  Result<const Statement*> statement(const std::string& sql) {
    Statement& s = statements[sql];
    if (s.get() == nullptr && !s.prepare(db, sql)) return error(sql);
    return const_cast<const Statement*>(&s);
  }

  Status read_header(bool writing) {
    std::int64_t format = 0;
    bool has_start = false;
    {
      TRY_ASSIGN(const Statement* s, statement("SELECT key, value FROM layer"));
      Use use(*s);
      int code = use.step();
      for (; code == SQLITE_ROW; code = use.step()) {
        const auto* key = reinterpret_cast<const char*>(sqlite3_column_text(use.row(), 0));
        if (key == nullptr) continue;
        if (std::strcmp(key, "format") == 0) format = sqlite3_column_int64(use.row(), 1);
        if (std::strcmp(key, "start_ns") == 0) {
          start_ns = sqlite3_column_int64(use.row(), 1);
          has_start = true;
        }
      }
      if (code != SQLITE_DONE) return error("layer");
    }
    if (format < kFormat || format > kNewestFormat || !has_start) {
      return Error("meta: format " + std::to_string(format) + " is not known to this version" +
                   (writing ? "; start a new sandbox" : ""));
    }
    return {};
  }

  Status run(Use& use, std::string_view what) {
    const int code = use.step();
    if (sqlite3_changes(db) > 0) unsynced = true;
    if (code != SQLITE_DONE && code != SQLITE_ROW) return error(what);
    return {};
  }
};

MetaStore::MetaStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetaStore::MetaStore(MetaStore&&) noexcept = default;
MetaStore& MetaStore::operator=(MetaStore&&) noexcept = default;
MetaStore::~MetaStore() = default;

Result<MetaStore> MetaStore::open(const std::filesystem::path& file, std::int64_t start_ns) {
  auto impl = std::make_unique<Impl>();
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                    SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(file.c_str(), &impl->db, flags, nullptr) != SQLITE_OK) {
    return impl->error("open " + file.string());
  }
  sqlite3_busy_timeout(impl->db, 2000);
  TRY(impl->execute("PRAGMA journal_mode=WAL"));
  TRY(impl->execute("PRAGMA synchronous=NORMAL"));
  TRY(impl->execute("PRAGMA temp_store=MEMORY"));
  TRY(impl->execute("PRAGMA journal_size_limit=16777216"));
  TRY(impl->execute("BEGIN IMMEDIATE"));
  TRY(impl->execute(kSchema));
  {
    TRY_ASSIGN(const Statement* s,
               impl->statement("INSERT OR IGNORE INTO layer (key, value) VALUES "
                               "('format', ?1), ('start_ns', ?2)"));
    Use use(*s);
    TRY(impl->run(use.number(kFormat).number(start_ns), "layer"));
  }
  TRY(impl->execute("COMMIT"));
  TRY(impl->read_header(true));
  TRY_ASSIGN(impl->records, RecordLog::open(beside(file, "-records")));
  impl->file = file;
  return MetaStore(std::move(impl));
}

Result<MetaStore> MetaStore::open_for_reading(const std::filesystem::path& file) {
  auto impl = std::make_unique<Impl>();
  const int flags =
      SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(file.c_str(), &impl->db, flags, nullptr) != SQLITE_OK) {
    return impl->error("open " + file.string());
  }
  sqlite3_busy_timeout(impl->db, 2000);
  TRY(impl->read_header(false));
  TRY_ASSIGN(impl->records, RecordLog::open_for_reading(beside(file, "-records")));
  return MetaStore(std::move(impl));
}

std::int64_t MetaStore::start_ns() const {
  return impl_->start_ns;
}

Result<bool> MetaStore::record_base(const BaseRecord& record, std::string_view content) {
  return impl_->records->add_base(record, content);
}

Status MetaStore::copy_to(const std::filesystem::path& file) const {
  sqlite3* to = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                    SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  int code = sqlite3_open_v2(file.c_str(), &to, flags, nullptr);
  if (code == SQLITE_OK) {
    if (sqlite3_backup* backup = sqlite3_backup_init(to, "main", impl_->db, "main")) {
      (void)sqlite3_backup_step(backup, -1);
      code = sqlite3_backup_finish(backup);
    } else {
      code = sqlite3_errcode(to);
    }
  }
  sqlite3_close(to);
  if (code != SQLITE_OK) {
    return Error("meta: copy to " + file.string() + ": " + sqlite3_errstr(code),
                 code == SQLITE_FULL ? ENOSPC : EIO);
  }
  return impl_->records->copy_to(beside(file, "-records"));
}

std::uint64_t MetaStore::base_rows() const {
  return impl_->records->bases();
}

std::uint64_t MetaStore::stored_bytes() const {
  return impl_->records->stored_bytes();
}

Result<std::optional<std::string>> MetaStore::base_content(std::string_view path) const {
  return impl_->records->content(path);
}

Result<std::optional<BaseRecord>> MetaStore::base(std::string_view path) const {
  return impl_->records->base(path);
}

Status MetaStore::for_each_base(std::string_view prefix,
                                const std::function<Status(const BaseRecord&)>& visit) const {
  return impl_->records->for_each_base(prefix, visit);
}

Status MetaStore::record_read(const ReadRecord& record) {
  return impl_->records->add_read(record);
}

Result<std::optional<ReadRecord>> MetaStore::read(std::string_view path) const {
  return impl_->records->read(path);
}

Status MetaStore::for_each_read(const std::function<Status(const ReadRecord&)>& visit) const {
  return impl_->records->for_each_read(visit);
}

Status MetaStore::add_whiteout(std::string_view path) {
  TRY_ASSIGN(const Statement* s, impl_->statement("INSERT OR IGNORE INTO whiteout VALUES (?)"));
  Use use(*s);
  return impl_->run(use.blob(path), "add whiteout");
}

Status MetaStore::remove_whiteout(std::string_view path) {
  TRY_ASSIGN(const Statement* s, impl_->statement("DELETE FROM whiteout WHERE path = ?"));
  Use use(*s);
  return impl_->run(use.blob(path), "remove whiteout");
}

Result<std::vector<std::string>> MetaStore::whiteouts() const {
  TRY_ASSIGN(const Statement* s, impl_->statement("SELECT path FROM whiteout ORDER BY path"));
  Use use(*s);
  std::vector<std::string> paths;
  int code = use.step();
  for (; code == SQLITE_ROW; code = use.step()) paths.push_back(blob_at(use.row(), 0));
  if (code != SQLITE_DONE) return impl_->error("whiteouts");
  return paths;
}

Status MetaStore::set_shown_inode(std::uint64_t upper_inode, std::uint64_t shown_inode) {
  TRY_ASSIGN(const Statement* s,
             impl_->statement("INSERT OR REPLACE INTO shown_inode VALUES (?, ?)"));
  Use use(*s);
  return impl_->run(use.unsigned_number(upper_inode).unsigned_number(shown_inode), "shown inode");
}

Status MetaStore::forget_shown_inode(std::uint64_t upper_inode) {
  TRY_ASSIGN(const Statement* s, impl_->statement("DELETE FROM shown_inode WHERE upper = ?"));
  Use use(*s);
  return impl_->run(use.unsigned_number(upper_inode), "shown inode");
}

Status MetaStore::for_each_shown_inode(
    const std::function<void(std::uint64_t upper, std::uint64_t shown)>& visit) const {
  Statement own;
  if (!own.prepare(impl_->db, "SELECT upper, shown FROM shown_inode")) {
    return impl_->error("shown inode");
  }
  Use use(own);
  int code = use.step();
  for (; code == SQLITE_ROW; code = use.step())
    visit(unsigned_at(use.row(), 0), unsigned_at(use.row(), 1));
  if (code != SQLITE_DONE) return impl_->error("shown inode");
  return {};
}

Status MetaStore::set_owner(std::uint64_t inode, std::uint32_t uid, std::uint32_t gid) {
  TRY_ASSIGN(const Statement* s, impl_->statement("INSERT OR REPLACE INTO owner VALUES (?, ?, ?)"));
  Use use(*s);
  return impl_->run(use.unsigned_number(inode).number(uid).number(gid), "owner");
}

Status MetaStore::forget_owner(std::uint64_t inode) {
  TRY_ASSIGN(const Statement* s, impl_->statement("DELETE FROM owner WHERE upper = ?"));
  Use use(*s);
  return impl_->run(use.unsigned_number(inode), "owner");
}

Status MetaStore::for_each_owner(const VisitOwner& visit) const {
  Statement own;
  // A layer that no newer version has opened has no such table, and no such owners.
  if (!own.prepare(impl_->db, "SELECT 1 FROM sqlite_master WHERE name = 'owner'")) {
    return impl_->error("owner");
  }
  if (Use there(own); there.step() != SQLITE_ROW) return {};
  Statement rows;
  if (!rows.prepare(impl_->db, "SELECT upper, uid, gid FROM owner")) return impl_->error("owner");
  Use use(rows);
  int code = use.step();
  for (; code == SQLITE_ROW; code = use.step()) {
    visit(unsigned_at(use.row(), 0), static_cast<std::uint32_t>(unsigned_at(use.row(), 1)),
          static_cast<std::uint32_t>(unsigned_at(use.row(), 2)));
  }
  if (code != SQLITE_DONE) return impl_->error("owner");
  return {};
}

Status MetaStore::copy_owner(std::uint64_t from, std::uint64_t to) {
  TRY(forget_owner(to));
  TRY_ASSIGN(const Statement* s,
             impl_->statement("INSERT INTO owner SELECT ?, uid, gid FROM owner WHERE upper = ?"));
  Use use(*s);
  return impl_->run(use.unsigned_number(to).unsigned_number(from), "owner");
}

Status MetaStore::set_link_group(const LinkGroupRecord& group) {
  TRY_ASSIGN(const Statement* s,
             impl_->statement("INSERT OR REPLACE INTO link_group VALUES (?, ?, ?, ?)"));
  Use use(*s);
  use.unsigned_number(group.inode).number(group.birth_ns).unsigned_number(group.names);
  return impl_->run(use.unsigned_number(group.upper), "link group");
}

Status MetaStore::forget_link_group(std::uint64_t inode, std::int64_t birth_ns) {
  for (const char* sql : {"DELETE FROM link_name WHERE inode = ? AND birth_ns = ?",
                          "DELETE FROM link_group WHERE inode = ? AND birth_ns = ?"}) {
    TRY_ASSIGN(const Statement* s, impl_->statement(sql));
    Use use(*s);
    TRY(impl_->run(use.unsigned_number(inode).number(birth_ns), "link group"));
  }
  return {};
}

Status MetaStore::add_link_name(std::string_view path, std::uint64_t inode, std::int64_t birth_ns) {
  TRY_ASSIGN(const Statement* s,
             impl_->statement("INSERT OR REPLACE INTO link_name VALUES (?, ?, ?)"));
  Use use(*s);
  return impl_->run(use.blob(path).unsigned_number(inode).number(birth_ns), "link name");
}

Status MetaStore::remove_link_name(std::string_view path, std::uint64_t inode,
                                   std::int64_t birth_ns) {
  TRY_ASSIGN(
      const Statement* s,
      impl_->statement("DELETE FROM link_name WHERE path = ? AND inode = ? AND birth_ns = ?"));
  Use use(*s);
  return impl_->run(use.blob(path).unsigned_number(inode).number(birth_ns), "link name");
}

Status MetaStore::for_each_link_group(
    const std::function<void(const LinkGroupRecord&)>& visit) const {
  TRY_ASSIGN(const Statement* s,
             impl_->statement("SELECT inode, birth_ns, names, upper FROM link_group"));
  Use use(*s);
  int code = use.step();
  for (; code == SQLITE_ROW; code = use.step()) {
    visit({unsigned_at(use.row(), 0), sqlite3_column_int64(use.row(), 1), unsigned_at(use.row(), 2),
           unsigned_at(use.row(), 3)});
  }
  if (code != SQLITE_DONE) return impl_->error("link group");
  return {};
}

Status MetaStore::for_each_link_name(
    const std::function<void(std::string path, std::uint64_t inode, std::int64_t birth_ns)>& visit)
    const {
  TRY_ASSIGN(const Statement* s, impl_->statement("SELECT path, inode, birth_ns FROM link_name"));
  Use use(*s);
  int code = use.step();
  for (; code == SQLITE_ROW; code = use.step()) {
    visit(blob_at(use.row(), 0), unsigned_at(use.row(), 1), sqlite3_column_int64(use.row(), 2));
  }
  if (code != SQLITE_DONE) return impl_->error("link name");
  return {};
}

// SQLite finds by their checksums which frames of the log are whole, so that the log is all that
// has to be on disk (sqlite.org/walformat.html).
std::vector<os::UniqueFd> MetaStore::unsynced_logs() {
  std::vector<os::UniqueFd> out;
  if (os::UniqueFd records = impl_->records->unsynced()) out.push_back(std::move(records));
  if (!impl_->unsynced || impl_->file.empty()) return out;
  auto opened = os::open_file(beside(impl_->file, "-wal"), O_RDONLY | O_NOFOLLOW);
  if (!opened.ok()) return out;
  impl_->unsynced = false;
  out.push_back(std::move(opened).value());
  return out;
}

Status MetaStore::sync() {
  for (const os::UniqueFd& log : unsynced_logs()) {
    if (::fdatasync(log.get()) != 0) return Error::from_errno("meta: sync");
  }
  return {};
}

sqlite3* MetaStore::database() const {
  return impl_->db;
}

Status MetaStore::sync_always() {
  impl_->unsynced = true;
  return sync();
}

Status MetaStore::begin() {
  CHECK(!impl_->in_transaction);
  impl_->records->begin_batch();
  impl_->in_transaction = true;
  return {};
}

Status MetaStore::commit() {
  CHECK(impl_->in_transaction);
  impl_->in_transaction = false;
  return impl_->records->end_batch();
}

}  // namespace cofferdam::layer
