#include "common/layer/meta_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>

#include "common/base/check.h"
#include "common/os/files.h"

namespace cofferdam::layer {
namespace {

constexpr std::int64_t kFormat = 1;

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS layer (key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS base (path BLOB PRIMARY KEY, state INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,"
    " size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,"
    " inode INTEGER NOT NULL, device INTEGER NOT NULL, sha256 BLOB, stored INTEGER NOT NULL,"
    " racy INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS read (path BLOB PRIMARY KEY, kind INTEGER NOT NULL,"
    " mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, size INTEGER NOT NULL,"
    " mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, inode INTEGER NOT NULL,"
    " device INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS whiteout (path BLOB PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS shown_inode (upper INTEGER PRIMARY KEY, shown INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS link_group (inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL,"
    " names INTEGER NOT NULL, upper INTEGER NOT NULL, PRIMARY KEY (inode, birth_ns)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS link_name (path BLOB PRIMARY KEY, inode INTEGER NOT NULL,"
    " birth_ns INTEGER NOT NULL) WITHOUT ROWID;";

constexpr const char* kBaseColumns =
    "path, state, kind, mode, uid, gid, size, mtime_ns, ctime_ns, inode, device, sha256, stored, "
    "racy";
constexpr const char* kReadColumns =
    "path, kind, mode, uid, gid, size, mtime_ns, ctime_ns, inode, device";

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
  Use& null() {
    sqlite3_bind_null(raw_, ++at_);
    return *this;
  }
  Use& version(const Version& v) {
    return number(static_cast<std::int64_t>(v.kind))
        .number(v.mode)
        .number(v.uid)
        .number(v.gid)
        .unsigned_number(v.size)
        .number(v.mtime_ns)
        .number(v.ctime_ns)
        .unsigned_number(v.inode)
        .unsigned_number(v.device);
  }
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

Version version_at(sqlite3_stmt* row, int first) {
  Version v;
  const std::int64_t kind = sqlite3_column_int64(row, first);
  v.kind = kind >= 0 && kind <= 4 ? static_cast<Kind>(kind) : Kind::kOther;
  v.mode = static_cast<std::uint32_t>(sqlite3_column_int64(row, first + 1));
  v.uid = static_cast<std::uint32_t>(sqlite3_column_int64(row, first + 2));
  v.gid = static_cast<std::uint32_t>(sqlite3_column_int64(row, first + 3));
  v.size = unsigned_at(row, first + 4);
  v.mtime_ns = sqlite3_column_int64(row, first + 5);
  v.ctime_ns = sqlite3_column_int64(row, first + 6);
  v.inode = unsigned_at(row, first + 7);
  v.device = unsigned_at(row, first + 8);
  return v;
}

BaseRecord base_at(sqlite3_stmt* row) {
  BaseRecord r;
  r.path = blob_at(row, 0);
  // Whatever is not "known" is a conflict.
  r.state = sqlite3_column_int64(row, 1) == 0 ? BaseState::kKnown : BaseState::kUnknown;
  r.version = version_at(row, 2);
  const std::string hash = blob_at(row, 11);
  if (hash.size() == std::tuple_size_v<Sha256Digest>) {
    Sha256Digest digest;
    std::memcpy(digest.data(), hash.data(), digest.size());
    r.sha256 = digest;
  }
  r.stored = sqlite3_column_int64(row, 12) != 0;
  r.racy = sqlite3_column_int64(row, 13) != 0;
  return r;
}

ReadRecord read_at(sqlite3_stmt* row) {
  return {blob_at(row, 0), version_at(row, 1)};
}

}  // namespace

struct MetaStore::Impl {
  sqlite3* db = nullptr;
  std::int64_t start_ns = 0;
  bool in_transaction = false;
  bool unsynced = true;
  std::filesystem::path file;
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
    if (format != kFormat || !has_start) {
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
  return MetaStore(std::move(impl));
}

std::int64_t MetaStore::start_ns() const {
  return impl_->start_ns;
}

Result<bool> MetaStore::record_base(const BaseRecord& record) {
  TRY_ASSIGN(const Statement* s,
             impl_->statement(std::string("INSERT OR IGNORE INTO base (") + kBaseColumns +
                              ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  Use use(*s);
  use.blob(record.path).number(static_cast<std::int64_t>(record.state)).version(record.version);
  if (record.sha256) {
    use.blob({reinterpret_cast<const char*>(record.sha256->data()), record.sha256->size()});
  } else {
    use.null();
  }
  TRY(impl_->run(use.number(record.stored ? 1 : 0).number(record.racy ? 1 : 0), "record base"));
  return sqlite3_changes(impl_->db) > 0;
}

Result<std::uint64_t> MetaStore::base_rows() const {
  TRY_ASSIGN(const Statement* s, impl_->statement("SELECT COUNT(*) FROM base"));
  Use use(*s);
  if (use.step() != SQLITE_ROW) return impl_->error("base");
  return unsigned_at(use.row(), 0);
}

Result<std::optional<BaseRecord>> MetaStore::base(std::string_view path) const {
  TRY_ASSIGN(const Statement* s,
             impl_->statement(std::string("SELECT ") + kBaseColumns + " FROM base WHERE path = ?"));
  Use use(*s);
  const int code = use.blob(path).step();
  if (code == SQLITE_DONE) return std::optional<BaseRecord>();
  if (code != SQLITE_ROW) return impl_->error("base");
  return std::optional<BaseRecord>(base_at(use.row()));
}

Status MetaStore::for_each_base(std::string_view prefix,
                                const std::function<Status(const BaseRecord&)>& visit) const {
  const std::string select = std::string("SELECT ") + kBaseColumns + " FROM base";
  const auto walk = [&](Use& use) -> Status {
    int code = use.step();
    for (; code == SQLITE_ROW; code = use.step()) TRY(visit(base_at(use.row())));
    if (code != SQLITE_DONE) return impl_->error("base");
    return {};
  };
  // Statements of their own: `visit` may use the store.
  Statement own;
  if (prefix.empty()) {
    if (!own.prepare(impl_->db, select + " ORDER BY path")) return impl_->error("base");
    Use use(own);
    return walk(use);
  }
  // What lies below P sorts between "P/" and "P0" ('0' follows '/').
  if (!own.prepare(impl_->db,
                   select + " WHERE path = ?1 OR (path > ?2 AND path < ?3) ORDER BY path")) {
    return impl_->error("base");
  }
  const std::string from = std::string(prefix) + "/";
  const std::string to = std::string(prefix) + "0";
  Use use(own);
  use.blob(prefix).blob(from).blob(to);
  return walk(use);
}

Status MetaStore::record_read(const ReadRecord& record) {
  TRY_ASSIGN(const Statement* s, impl_->statement(std::string("INSERT OR IGNORE INTO read (") +
                                                  kReadColumns + ") VALUES (?,?,?,?,?,?,?,?,?,?)"));
  Use use(*s);
  return impl_->run(use.blob(record.path).version(record.version), "record read");
}

Result<std::optional<ReadRecord>> MetaStore::read(std::string_view path) const {
  TRY_ASSIGN(const Statement* s,
             impl_->statement(std::string("SELECT ") + kReadColumns + " FROM read WHERE path = ?"));
  Use use(*s);
  const int code = use.blob(path).step();
  if (code == SQLITE_DONE) return std::optional<ReadRecord>();
  if (code != SQLITE_ROW) return impl_->error("read");
  return std::optional<ReadRecord>(read_at(use.row()));
}

Status MetaStore::for_each_read(const std::function<Status(const ReadRecord&)>& visit) const {
  Statement own;
  if (!own.prepare(impl_->db, std::string("SELECT ") + kReadColumns + " FROM read ORDER BY path")) {
    return impl_->error("read");
  }
  Use use(own);
  int code = use.step();
  for (; code == SQLITE_ROW; code = use.step()) TRY(visit(read_at(use.row())));
  if (code != SQLITE_DONE) return impl_->error("read");
  return {};
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

Status MetaStore::remove_link_name(std::string_view path) {
  TRY_ASSIGN(const Statement* s, impl_->statement("DELETE FROM link_name WHERE path = ?"));
  Use use(*s);
  return impl_->run(use.blob(path), "link name");
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
os::UniqueFd MetaStore::unsynced_log() {
  if (!impl_->unsynced || impl_->file.empty()) return {};
  std::filesystem::path log = impl_->file;
  log += "-wal";
  auto opened = os::open_file(log, O_RDONLY | O_NOFOLLOW);
  if (!opened.ok()) return {};
  impl_->unsynced = false;
  return std::move(opened).value();
}

Status MetaStore::sync() {
  const os::UniqueFd log = unsynced_log();
  if (!log) return {};
  if (::fdatasync(log.get()) != 0) return Error::from_errno("meta: sync");
  return {};
}

Status MetaStore::begin() {
  CHECK(!impl_->in_transaction);
  TRY(impl_->execute("BEGIN IMMEDIATE"));
  impl_->in_transaction = true;
  return {};
}

Status MetaStore::commit() {
  CHECK(impl_->in_transaction);
  impl_->in_transaction = false;
  if (Status s = impl_->execute("COMMIT"); !s.ok()) {
    (void)impl_->execute("ROLLBACK").ok();
    return s.error();
  }
  return {};
}

}  // namespace cofferdam::layer
