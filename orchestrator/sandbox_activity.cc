#include "orchestrator/sandbox_activity.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "common/os/files.h"
#include "common/os/sockets.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/summary.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

// A service that hangs is not waited for.
constexpr std::chrono::seconds kPatience{1};
constexpr std::size_t kMostAnswer = 1U << 20U;
// Entries of an upper that are counted; a larger one is not known.
constexpr std::size_t kMostEntries = 200'000;

std::optional<Json> stats_of(const SandboxRecord& record, const char* socket) {
  const auto fd = os::connect_unix(record.directory, socket, kPatience);
  if (!fd.ok()) return std::nullopt;
  if (!os::write_all(fd->get(), "GET /stats HTTP/1.1\r\nHost: control\r\n\r\n").ok()) {
    return std::nullopt;
  }
  const auto answer = os::read_fd(fd->get(), kMostAnswer);
  if (!answer.ok() || !answer->starts_with("HTTP/1.1 200 ")) return std::nullopt;
  const std::size_t end = answer->find("\r\n\r\n");
  if (end == std::string::npos) return std::nullopt;
  auto json = parse_json(answer->substr(end + 4));
  if (!json.ok() || !json->is_object()) return std::nullopt;
  return std::move(json).value();
}

std::optional<std::uint64_t> number_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

// What the layers of one that has ended hold on disk.
std::optional<std::uint64_t> bytes_on_disk(const SandboxRecord& record) {
  constexpr std::uint64_t kBlock = 512;
  std::uint64_t bytes = 0;
  std::size_t entries = 0;
  std::error_code code;
  for (const char* part : {"upper", "layers", "home/upper", "home/layers"}) {
    fs::recursive_directory_iterator it(record.directory / part, code);
    if (code) {
      code.clear();
      continue;
    }
    for (; !code && it != fs::recursive_directory_iterator(); it.increment(code)) {
      if (++entries > kMostEntries) return std::nullopt;
      struct stat st {};
      if (::lstat(it->path().c_str(), &st) != 0) continue;
      bytes += static_cast<std::uint64_t>(st.st_blocks) * kBlock;
    }
    if (code) return std::nullopt;
  }
  return bytes;
}

Result<bool> is_orphan(const SandboxStore& store, const SandboxRecord& record) {
  if (record.ended_for_good()) return false;
  TRY_ASSIGN(const auto owned, store.try_own(record));
  return owned.has_value() && !owned->record.ended_for_good();
}

}  // namespace

void ActivityReader::read_events(const SandboxRecord& record, Seen* seen) {
  const auto read = for_each_event(record.events(), seen->offset, [&](const Json& event) {
    const std::uint64_t count =
        event_text(event, "event") == "suppressed" ? event_number(event, "count") : 1;
    const std::string verdict = event_text(event, "verdict");
    if (verdict == "allow") seen->allowed += count;
    if (verdict != "deny") return;
    seen->denied += count;
    seen->last_denied = describe_act(event) + ": " + event_text(event, "reason");
  });
  if (read.ok()) seen->offset = *read;
}

Result<std::vector<SandboxActivity>> ActivityReader::read(bool all) {
  TRY_ASSIGN(const std::vector<SandboxRecord> records, store_.list());
  std::vector<SandboxActivity> out;
  for (const SandboxRecord& record : records) {
    if (record.ended_for_good() && !all) continue;
    Seen& seen = seen_[record.id];
    read_events(record, &seen);
    SandboxActivity activity;
    activity.record = record;
    const auto orphan = is_orphan(store_, record);
    activity.orphan = orphan.ok() && *orphan;
    activity.denied = seen.denied;
    activity.allowed = seen.allowed;
    activity.last_denied = seen.last_denied;
    if (record.ended_for_good() || activity.orphan) {
      if (!seen.ended_bytes) seen.ended_bytes = bytes_on_disk(record);
      activity.upper_bytes = seen.ended_bytes;
      activity.connections = 0;
    } else {
      seen.ended_bytes.reset();  // it may have begun again
      if (const auto stats = stats_of(record, kEgressControlName)) {
        activity.connections = number_in(*stats, "connections");
      }
      if (const auto stats = stats_of(record, kFilesControlName)) {
        activity.upper_bytes = number_in(*stats, "bytes");
        activity.upper_limit = number_in(*stats, "bytes_limit");
      }
    }
    out.push_back(std::move(activity));
  }
  return out;
}

}  // namespace cofferdam::orchestrator
