#include "orchestrator/init/workload.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "orchestrator/init/execute_rules.h"

namespace cofferdam::init {
namespace {

constexpr std::size_t kPage = 4096;

[[noreturn]] void fail(volatile int* report) {
  *report = errno != 0 ? errno : EINVAL;
  ::_exit(127);
}

// Moves the three above the standard numbers first, so that no dup2 overwrites one of them.
bool place_stdio(const WorkloadStdio& stdio) {
  const int sources[3] = {stdio.in, stdio.out, stdio.err};
  int moved[3];
  for (int i = 0; i < 3; ++i) {
    moved[i] = ::fcntl(sources[i], F_DUPFD, 3);
    if (moved[i] < 0) return false;
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(moved[i], i) < 0) return false;
  }
  return true;
}

// Never above what this process may have itself: a smaller limit of the machine holds.
bool limit_to(__rlimit_resource_t resource, const std::optional<std::uint64_t>& most) {
  if (!most) return true;
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return false;
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, *most);
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(resource, &limit) == 0;
}

[[noreturn]] void child(char** argv, char** env, const char* directory, const WorkloadStdio& stdio,
                        const WorkloadRules& rules, volatile int* report) {
  if (::setsid() < 0) fail(report);
  if (!place_stdio(stdio)) fail(report);
  if (stdio.terminal && ::ioctl(0, TIOCSCTTY, 0) != 0) fail(report);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!limit_to(RLIMIT_NPROC, rules.max_processes)) fail(report);
  if (!limit_to(RLIMIT_NOFILE, rules.open_files)) fail(report);
  if (!limit_to(RLIMIT_FSIZE, rules.file_size)) fail(report);
  if (::chdir(directory) != 0) fail(report);
  if (rules.execute_rules >= 0 && !enforce_execute_rules(rules.execute_rules)) fail(report);
  environ = env;  // execvp searches the PATH of the workload, not ours
  if (::syscall(SYS_close_range, 3U, ~0U, 0U) != 0) fail(report);
  ::execvp(argv[0], argv);
  fail(report);
}

}  // namespace

Result<SpawnSpec> parse_spawn_spec(const std::string& text) {
  std::vector<std::string> fields;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    if (end == std::string::npos) return Error("spawn message: a field without an end");
    fields.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (fields.size() < 3) return Error("spawn message: too few fields");
  const unsigned long count = std::strtoul(fields[1].c_str(), nullptr, 10);
  if (count == 0 || count > fields.size() - 2) return Error("spawn message: number of arguments");
  const auto arguments = fields.begin() + 2;
  const auto environment = arguments + static_cast<std::ptrdiff_t>(count);
  SpawnSpec spec;
  spec.directory = fields[0];
  spec.argv.assign(arguments, environment);
  spec.env.assign(environment, fields.end());
  return spec;
}

Result<ExecReport> ExecReport::create() {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return Error::from_errno("mmap");
  return ExecReport(static_cast<volatile int*>(page));
}

ExecReport::ExecReport(ExecReport&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

ExecReport::~ExecReport() {
  if (page_ != nullptr) ::munmap(const_cast<int*>(page_), kPage);
}

Result<Workload> start_workload(const SpawnSpec& spec, const WorkloadStdio& stdio,
                                const WorkloadRules& rules) {
  std::vector<char*> argv;
  for (const std::string& word : spec.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (const std::string& word : spec.env) env.push_back(const_cast<char*>(word.c_str()));
  env.push_back(nullptr);
  TRY_ASSIGN(ExecReport report, ExecReport::create());
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("fork");
  if (pid == 0) {
    child(argv.data(), env.data(), spec.directory.c_str(), stdio, rules, report.page());
  }
  return Workload{pid, std::move(report)};
}

}  // namespace cofferdam::init
