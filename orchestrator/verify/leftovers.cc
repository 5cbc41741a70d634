#include "orchestrator/verify/leftovers.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/os/files.h"
#include "orchestrator/reap.h"
#include "orchestrator/verify/range.h"

namespace cofferdam::orchestrator::verify {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarks = "verify";

// Only a directory of that name, of this user, that is no link: the mark is a file of ours, but
// what it names lies where everybody may write.
bool is_range(const fs::path& path) {
  struct stat st {};
  return path.is_absolute() && path.filename().string().starts_with(kRangePrefix) &&
         ::lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == ::geteuid();
}

Status remove_range(const fs::path& range) {
  if (!is_range(range)) return {};
  const fs::path root = range / "state/cofferdam/sandboxes";
  std::error_code code;
  if (fs::is_directory(root, code)) {
    TRY_ASSIGN(const std::vector<Reaped> reaped, reap_orphans(SandboxStore(root)));
    for (const Reaped& one : reaped) {
      if (!one.failed.empty()) return Error(one.failed.front());
    }
  }
  return os::remove_tree(range);
}

}  // namespace

Result<RangeMark> RangeMark::create(const fs::path& state, const fs::path& range) {
  const fs::path file = state / kMarks / range.filename();
  TRY(os::make_directories(file.parent_path(), 0700));
  TRY(os::write_file_atomic(file, range.string() + "\n"));
  TRY_ASSIGN(auto lock, os::FileLock::try_acquire(file));
  if (!lock) return Error(file.string() + " is held by another verify");
  return RangeMark(file, std::move(*lock));
}

RangeMark::~RangeMark() {
  if (!file_.empty()) (void)::unlink(file_.c_str());
}

ReapedRanges reap_ranges(const fs::path& state) {
  ReapedRanges out;
  std::error_code code;
  for (fs::directory_iterator it(state / kMarks, code), end; !code && it != end;
       it.increment(code)) {
    const auto lock = os::FileLock::try_acquire(it->path());
    if (!lock.ok() || !*lock) continue;  // it is at work
    auto text = os::read_file(it->path(), 4096);
    if (!text.ok()) continue;
    while (!text->empty() && text->back() == '\n') text->pop_back();
    const Status removed = remove_range(*text);
    if (!removed.ok()) {
      out.failed.push_back(*text + ": " + removed.error().message());
      continue;
    }
    (void)::unlink(it->path().c_str());
    out.removed.push_back(*text);
  }
  return out;
}

}  // namespace cofferdam::orchestrator::verify
