#include "orchestrator/verify/process_marks.h"

#include <charconv>
#include <filesystem>

#include "common/os/files.h"

namespace cofferdam::orchestrator::verify {

std::vector<pid_t> find_marked(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code code;
  for (std::filesystem::directory_iterator it("/proc", code), end; !code && it != end;
       it.increment(code)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [rest, fault] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (fault != std::errc() || rest != name.data() + name.size()) continue;
    const auto line = os::read_file(it->path() / "cmdline");
    if (line.ok() && line->starts_with(mark)) found.push_back(pid);
  }
  return found;
}

}  // namespace cofferdam::orchestrator::verify
