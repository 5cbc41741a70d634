#include "common/os/process_identity.h"

#include <cerrno>
#include <cstdlib>

#include "common/os/files.h"

namespace cofferdam::os {

Result<std::uint64_t> start_ticks(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  TRY_ASSIGN(const std::string stat, read_file(path, 65536));
  // Field 2 is the name in parentheses and may hold anything; fields are counted after it.
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return Error(path + ": too short");
  return std::strtoull(stat.c_str() + at, nullptr, 10);
}

Result<std::string> boot_id() {
  TRY_ASSIGN(std::string text, read_file("/proc/sys/kernel/random/boot_id", 4096));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Result<ProcessHandle> open_process(pid_t pid, std::uint64_t ticks, const std::string& boot) {
  const auto gone = [&] { return Error::from_errno("process " + std::to_string(pid), ESRCH); };
  TRY_ASSIGN(const std::string now, boot_id());
  if (pid <= 1 || now != boot) return gone();
  // Held first, then looked at: what the number means cannot change in between.
  auto process = ProcessHandle::open(pid);
  if (!process.ok()) return gone();
  const auto found = start_ticks(pid);
  if (!found.ok() || *found != ticks || process->ended()) return gone();
  return process;
}

}  // namespace cofferdam::os
