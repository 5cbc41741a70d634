#include "egressproxy/cage.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "common/log/diagnostics.h"
#include "common/os/confine.h"

namespace cofferdam::egressproxy {
namespace {

// What an event loop with sockets needs. Everything else fails with EPERM.
constexpr int kAllowed[] = {SCMP_SYS(accept),
                            SCMP_SYS(accept4),
                            SCMP_SYS(bind),
                            SCMP_SYS(brk),
                            SCMP_SYS(clock_getres),
                            SCMP_SYS(clock_gettime),
                            SCMP_SYS(clock_nanosleep),
                            SCMP_SYS(close),
                            SCMP_SYS(connect),
                            SCMP_SYS(dup),
                            SCMP_SYS(epoll_create1),
                            SCMP_SYS(epoll_ctl),
                            SCMP_SYS(epoll_pwait),
                            SCMP_SYS(epoll_wait),
                            SCMP_SYS(eventfd2),
                            SCMP_SYS(exit),
                            SCMP_SYS(exit_group),
                            SCMP_SYS(fcntl),
                            SCMP_SYS(fstat),
                            SCMP_SYS(futex),
                            SCMP_SYS(getegid),
                            SCMP_SYS(geteuid),
                            SCMP_SYS(getgid),
                            SCMP_SYS(getpeername),
                            SCMP_SYS(getpid),
                            SCMP_SYS(getrandom),
                            SCMP_SYS(getsockname),
                            SCMP_SYS(getsockopt),
                            SCMP_SYS(gettid),
                            SCMP_SYS(gettimeofday),
                            SCMP_SYS(getuid),
                            SCMP_SYS(lseek),
                            SCMP_SYS(madvise),
                            SCMP_SYS(mremap),
                            SCMP_SYS(munmap),
                            SCMP_SYS(nanosleep),
                            SCMP_SYS(pipe2),
                            SCMP_SYS(poll),
                            SCMP_SYS(ppoll),
                            SCMP_SYS(read),
                            SCMP_SYS(readv),
                            SCMP_SYS(recvfrom),
                            SCMP_SYS(recvmsg),
                            SCMP_SYS(restart_syscall),
                            SCMP_SYS(rseq),
                            SCMP_SYS(rt_sigaction),
                            SCMP_SYS(rt_sigprocmask),
                            SCMP_SYS(rt_sigreturn),
                            SCMP_SYS(sched_yield),
                            SCMP_SYS(sendmsg),
                            SCMP_SYS(sendto),
                            SCMP_SYS(set_robust_list),
                            SCMP_SYS(setsockopt),
                            SCMP_SYS(shutdown),
                            SCMP_SYS(sigaltstack),
                            SCMP_SYS(splice),
                            SCMP_SYS(tgkill),
                            SCMP_SYS(timerfd_create),
                            SCMP_SYS(timerfd_settime),
                            SCMP_SYS(write),
                            SCMP_SYS(writev)};

// What nobody calls by accident: the end of the process.
constexpr int kFatal[] = {SCMP_SYS(execve),
                          SCMP_SYS(execveat),
                          SCMP_SYS(ptrace),
                          SCMP_SYS(process_vm_readv),
                          SCMP_SYS(process_vm_writev),
                          SCMP_SYS(mount),
                          SCMP_SYS(unshare),
                          SCMP_SYS(setns),
                          SCMP_SYS(bpf),
                          SCMP_SYS(init_module),
                          SCMP_SYS(finit_module),
                          SCMP_SYS(kexec_load)};

Status seccomp_error(const char* what, int code) {
  return Error::from_errno(std::string("seccomp: ") + what, -code);
}

// libseccomp's macros for these are C: compound literals that C++ does not have.
scmp_arg_cmp equal(unsigned argument, scmp_datum_t value) {
  return {.arg = argument, .op = SCMP_CMP_EQ, .datum_a = value, .datum_b = 0};
}
scmp_arg_cmp masked(unsigned argument, scmp_datum_t mask, scmp_datum_t value) {
  return {.arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

// Calls that are allowed for some values of one argument.
Status add_conditional_rules(scmp_filter_ctx filter) {
  struct Rule {
    const char* what;
    int call;
    scmp_arg_cmp argument;
  };
  std::vector<Rule> rules;
  for (const int family : {AF_INET, AF_INET6, AF_NETLINK}) {
    rules.push_back({"socket", SCMP_SYS(socket), equal(0, static_cast<scmp_datum_t>(family))});
  }
  for (const scmp_datum_t request :
       {scmp_datum_t{FIONBIO}, scmp_datum_t{FIONREAD}, scmp_datum_t{TIOCOUTQ}}) {
    rules.push_back({"ioctl", SCMP_SYS(ioctl), equal(1, request)});
  }
  // No memory becomes code.
  for (const int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) {
    rules.push_back({"memory", call, masked(2, PROT_EXEC, 0)});
  }
  // Of a descriptor, never of a path: this is how the C library spells fstat(2).
  rules.push_back({"newfstatat", SCMP_SYS(newfstatat), masked(3, AT_EMPTY_PATH, AT_EMPTY_PATH)});
  // Files only for reading; Landlock says which. c-ares seeds itself from /dev/urandom.
  rules.push_back(
      {"openat", SCMP_SYS(openat), masked(2, O_ACCMODE | O_CREAT | O_TRUNC | O_PATH, O_RDONLY)});
  for (const Rule& rule : rules) {
    const int code = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rule.call, 1, &rule.argument);
    if (code != 0) return seccomp_error(rule.what, code);
  }
  return {};
}

Status filter_system_calls() {
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> owner(seccomp_init(SCMP_ACT_ERRNO(EPERM)),
                                                               seccomp_release);
  const scmp_filter_ctx filter = owner.get();
  if (filter == nullptr) return Error("seccomp: no filter");
  for (const int call : kAllowed) {
    const int code = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
    if (code != 0) return seccomp_error("allow", code);
  }
  for (const int call : kFatal) {
    const int code = seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, call, 0);
    if (code != 0) return seccomp_error("kill", code);
  }
  TRY(add_conditional_rules(filter));
  const int loaded = seccomp_load(filter);
  if (loaded != 0) return seccomp_error("load", loaded);
  return {};
}

}  // namespace

Status enter_cage(std::optional<std::uint32_t> uid, std::optional<std::uint32_t> gid) {
  if (::geteuid() == 0) {
    if (!uid || !gid) return Error("started by root: give --uid and --gid of an unprivileged user");
    TRY(os::drop_bounding_set());
    TRY(os::become_user(*uid, *gid));
  }
  TRY(os::drop_capabilities());
  TRY(os::forbid_privileges_and_dumps());
  TRY_ASSIGN(const os::LandlockOutcome files, os::restrict_files({"/dev/urandom"}));
  if (files == os::LandlockOutcome::kNotAvailable) {
    spdlog::warn("this kernel has no Landlock: files are guarded by ids and seccomp only");
  }
  return filter_system_calls();
}

}  // namespace cofferdam::egressproxy
