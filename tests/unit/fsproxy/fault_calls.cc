// The names of both sizes of off_t are defined here, which are one on the machines that we build
// for.
#undef _FILE_OFFSET_BITS
#include "tests/unit/fsproxy/fault_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<std::int64_t> step_to_die{-1};
std::atomic<std::int64_t> steps_done{0};
std::atomic<bool> armed{false};
std::vector<std::string> synced_files;

void note_sync(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
  if (armed && size > 0) synced_files.emplace_back(path, static_cast<std::size_t>(size));
}

void step() {
  if (!armed) return;
  if (++steps_done == step_to_die) ::kill(::getpid(), SIGKILL);
}

int as_int(long result) {
  return static_cast<int>(result);
}

int open_at(int dir, const char* path, int flags, mode_t mode) {
  if ((flags & (O_CREAT | O_TRUNC)) != 0) step();
  return as_int(::syscall(SYS_openat, dir, path, flags, mode));
}

}  // namespace

namespace cofferdam::fault {

void die_at(std::int64_t step) {
  steps_done = 0;
  step_to_die = step;
  armed = true;
  synced_files.clear();
}

const std::vector<std::string>& synced() {
  return synced_files;
}

std::int64_t steps() {
  return steps_done;
}

void disarm() {
  armed = false;
}

}  // namespace cofferdam::fault

// The declarations of the C library name their parameters and attributes differently.
extern "C" {

int renameat(int from, const char* a, int to, const char* b) noexcept {
  step();
  return as_int(::syscall(SYS_renameat2, from, a, to, b, 0));
}
int renameat2(int from, const char* a, int to, const char* b, unsigned flags) noexcept {
  step();
  return as_int(::syscall(SYS_renameat2, from, a, to, b, flags));
}
int linkat(int from, const char* a, int to, const char* b, int flags) noexcept {
  step();
  return as_int(::syscall(SYS_linkat, from, a, to, b, flags));
}
int unlinkat(int dir, const char* path, int flags) noexcept {
  step();
  return as_int(::syscall(SYS_unlinkat, dir, path, flags));
}
int unlink(const char* path) noexcept {
  step();
  return as_int(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int mkdirat(int dir, const char* path, mode_t mode) noexcept {
  step();
  return as_int(::syscall(SYS_mkdirat, dir, path, mode));
}
int mknodat(int dir, const char* path, mode_t mode, dev_t device) noexcept {
  step();
  return as_int(::syscall(SYS_mknodat, dir, path, mode, device));
}
int symlinkat(const char* target, int dir, const char* path) noexcept {
  step();
  return as_int(::syscall(SYS_symlinkat, target, dir, path));
}
int openat(int dir, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_at(dir, path, flags, mode);
}
int openat64(int dir, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_at(dir, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_at(AT_FDCWD, path, flags, mode);
}
ssize_t write(int fd, const void* bytes, size_t size) {
  step();
  return ::syscall(SYS_write, fd, bytes, size);
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  step();
  return ::syscall(SYS_pwrite64, fd, bytes, size, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  step();
  return ::syscall(SYS_pwrite64, fd, bytes, size, offset);
}
int ftruncate(int fd, off_t size) noexcept {
  step();
  return as_int(::syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off64_t size) noexcept {
  step();
  return as_int(::syscall(SYS_ftruncate, fd, size));
}
int fchmod(int fd, mode_t mode) noexcept {
  step();
  return as_int(::syscall(SYS_fchmod, fd, mode));
}
int fchmodat(int dir, const char* path, mode_t mode, int) noexcept {
  step();
  return as_int(::syscall(SYS_fchmodat, dir, path, mode));
}
int fchown(int fd, uid_t uid, gid_t gid) noexcept {
  step();
  return as_int(::syscall(SYS_fchown, fd, uid, gid));
}
int fchownat(int dir, const char* path, uid_t uid, gid_t gid, int flags) noexcept {
  step();
  return as_int(::syscall(SYS_fchownat, dir, path, uid, gid, flags));
}
int utimensat(int dir, const char* path, const struct timespec times[2], int flags) noexcept {
  step();
  return as_int(::syscall(SYS_utimensat, dir, path, times, flags));
}
int futimens(int fd, const struct timespec times[2]) noexcept {
  step();
  return as_int(::syscall(SYS_utimensat, fd, nullptr, times, 0));
}
int fsetxattr(int fd, const char* name, const void* value, size_t size, int flags) noexcept {
  step();
  return as_int(::syscall(SYS_fsetxattr, fd, name, value, size, flags));
}
int fsync(int fd) {
  note_sync(fd);
  return as_int(::syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  note_sync(fd);
  return as_int(::syscall(SYS_fdatasync, fd));
}
ssize_t copy_file_range(int from, off64_t* in, int to, off64_t* out, size_t size, unsigned flags) {
  step();
  return ::syscall(SYS_copy_file_range, from, in, to, out, size, flags);
}

}  // extern "C"
