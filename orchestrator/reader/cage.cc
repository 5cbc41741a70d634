#include "orchestrator/reader/cage.h"

#include <seccomp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "common/os/confine.h"

namespace cofferdam::orchestrator::reader {
namespace {

constexpr uid_t kNobody = 65534;
constexpr rlim_t kMaxMemory = rlim_t{3} << 30U;
constexpr rlim_t kMaxSeconds = 900;
constexpr rlim_t kMaxFiles = 4096;

// Descriptors that it holds, memory, its end. No call takes a path.
constexpr int kAllowed[] = {SCMP_SYS(read),           SCMP_SYS(pread64),
                            SCMP_SYS(write),          SCMP_SYS(writev),
                            SCMP_SYS(recvmsg),        SCMP_SYS(sendmsg),
                            SCMP_SYS(close),          SCMP_SYS(fstat),
                            SCMP_SYS(lseek),          SCMP_SYS(brk),
                            SCMP_SYS(munmap),         SCMP_SYS(mremap),
                            SCMP_SYS(madvise),        SCMP_SYS(futex),
                            SCMP_SYS(getrandom),      SCMP_SYS(getpid),
                            SCMP_SYS(gettid),         SCMP_SYS(getuid),
                            SCMP_SYS(geteuid),        SCMP_SYS(tgkill),
                            SCMP_SYS(rt_sigaction),   SCMP_SYS(rt_sigprocmask),
                            SCMP_SYS(rt_sigreturn),   SCMP_SYS(sigaltstack),
                            SCMP_SYS(exit),           SCMP_SYS(exit_group),
                            SCMP_SYS(clock_gettime),  SCMP_SYS(sched_yield),
                            SCMP_SYS(restart_syscall)};

scmp_arg_cmp without(unsigned argument, scmp_datum_t bits) {
  return {.arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = bits, .datum_b = 0};
}

Status filter_system_calls() {
  // Whatever else it calls, it is not the program that was started.
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> owner(seccomp_init(SCMP_ACT_KILL_PROCESS),
                                                               seccomp_release);
  const scmp_filter_ctx filter = owner.get();
  if (filter == nullptr) return Error("seccomp: no filter");
  const auto failed = [](int code) { return Error::from_errno("seccomp", -code); };
  for (const int call : kAllowed) {
    if (const int code = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0); code != 0) {
      return failed(code);
    }
  }
  for (const int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) {
    const scmp_arg_cmp no_code = without(2, PROT_EXEC);
    const int code = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, call, 1, &no_code);
    if (code != 0) return failed(code);
  }
  // Told apart from a fault: what is tried all the same fails.
  for (const int call :
       {SCMP_SYS(openat), SCMP_SYS(open), SCMP_SYS(socket), SCMP_SYS(newfstatat)}) {
    if (const int code = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0); code != 0) {
      return failed(code);
    }
  }
  if (const int code = seccomp_load(filter); code != 0) return failed(code);
  return {};
}

Status limit(int resource, rlim_t most) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) != 0) {
    return Error::from_errno("getrlimit");
  }
  const rlim_t value = now.rlim_max < most ? now.rlim_max : most;
  const rlimit wanted{value, value};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &wanted) != 0) {
    return Error::from_errno("setrlimit");
  }
  return {};
}

}  // namespace

Status enter_cage() {
  TRY(limit(RLIMIT_CPU, kMaxSeconds));
  TRY(limit(RLIMIT_NOFILE, kMaxFiles));
  TRY(limit(RLIMIT_FSIZE, 0));
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COFFERDAM_SHADOW_MEMORY
#endif
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(COFFERDAM_SHADOW_MEMORY)
  TRY(limit(RLIMIT_AS, kMaxMemory));
#endif
  if (::geteuid() == 0) {
    TRY(os::drop_bounding_set());
    TRY(os::become_user(kNobody, kNobody));
  }
  TRY(os::drop_capabilities());
  TRY(os::forbid_privileges_and_dumps());
  // Where the kernel has no Landlock the filter alone keeps every path away.
  TRY_ASSIGN(const os::LandlockOutcome files, os::restrict_files({}));
  (void)files;
  return filter_system_calls();
}

}  // namespace cofferdam::orchestrator::reader
