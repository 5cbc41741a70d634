#include "orchestrator/event_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "common/os/files.h"

namespace cofferdam::orchestrator {

Result<std::uint64_t> for_each_event(const std::filesystem::path& file, std::uint64_t offset,
                                     const std::function<void(const Json& event)>& visit) {
  auto fd = os::open_file(file, O_RDONLY);
  if (!fd.ok()) {
    if (fd.error().error_number() == ENOENT) return offset;
    return fd.error();
  }
  constexpr std::size_t kMaxLine = 1U << 20U;
  std::string pending;
  std::uint64_t at = offset;  // of the byte after `pending`
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::pread(fd->get(), buffer, sizeof buffer, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("read " + file.string());
    if (got == 0) return at - pending.size();
    at += static_cast<std::uint64_t>(got);
    pending.append(buffer, static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = pending.find('\n'); end != std::string::npos;
         end = pending.find('\n', begin)) {
      const auto event = parse_json(std::string_view(pending).substr(begin, end - begin));
      if (event.ok() && event->is_object()) visit(*event);
      begin = end + 1;
    }
    pending.erase(0, begin);
    if (pending.size() > kMaxLine) return Error(file.string() + ": a line is longer than 1 MiB");
  }
}

std::string event_text(const Json& event, const char* field) {
  const auto found = event.find(field);
  if (found == event.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::uint64_t event_number(const Json& event, const char* field) {
  const auto found = event.find(field);
  return found != event.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

}  // namespace cofferdam::orchestrator
