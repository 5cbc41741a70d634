#include "common/log/event_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/escape.h"
#include "common/base/text_time.h"

namespace cofferdam::log {
namespace {

// What makes two events equal: all but the fields that differ by nature.
std::string repeat_key(std::string_view event, const Json& fields) {
  Json key = fields;
  for (const char* volatile_field :
       {"duration_ms", "bytes_up", "bytes_down", "connection", "source_port"}) {
    key.erase(volatile_field);
  }
  return std::string(event) + canonical_json(key);
}

}  // namespace

EventLog::EventLog(os::UniqueFd fd, EventContext context)
    : fd_(std::move(fd)), context_(std::move(context)) {}

EventLog::~EventLog() {
  const std::lock_guard lock(mutex_);
  flush_suppressed(std::chrono::steady_clock::now(), true);
}

Status EventLog::write(std::string_view event, Json fields) {
  const std::lock_guard lock(mutex_);
  if (suppress(event, fields)) return {};
  return append(event, std::move(fields));
}

bool EventLog::suppress(std::string_view event, const Json& fields) {
  constexpr std::size_t kMaxKeys = 4096;
  const auto now = std::chrono::steady_clock::now();
  flush_suppressed(now, false);
  if (repeats_.size() >= kMaxKeys) flush_suppressed(now, true);
  Repeat& repeat = repeats_[repeat_key(event, fields)];
  if (repeat.count == 0) repeat.since = now;
  if (++repeat.count <= kRepeatLimit) return false;
  ++repeat.suppressed;
  return true;
}

void EventLog::flush_suppressed(std::chrono::steady_clock::time_point now, bool all) {
  for (auto it = repeats_.begin(); it != repeats_.end();) {
    if (!all && now - it->second.since < kRepeatWindow) {
      ++it;
      continue;
    }
    if (it->second.suppressed > 0) {
      const auto brace = it->first.find('{');
      (void)append(
          "suppressed",
          {{"of", it->first.substr(0, brace)},
           {"count", it->second.suppressed},
           {"fields", it->first.substr(brace == std::string::npos ? it->first.size() : brace)}})
          .ok();
    }
    it = repeats_.erase(it);
  }
}

Status EventLog::append(std::string_view event, Json fields) {
  Json line = std::move(fields);
  if (!line.is_object()) line = Json::object();
  line["time"] = now_rfc3339();
  line["sandbox"] = context_.sandbox;
  line["operation"] = context_.operation;
  line["manifest"] = context_.manifest;
  line["service"] = context_.service;
  line["event"] = event;
  const std::string text = canonical_json(line) + "\n";
  struct stat st {};
  if (::fstat(fd_.get(), &st) != 0) {
    healthy_ = false;
    return Error::from_errno("events");
  }
  if (S_ISREG(st.st_mode) && static_cast<std::uint64_t>(st.st_size) + text.size() > kMaxBytes) {
    healthy_ = false;
    return Error::from_errno("events", EFBIG);
  }
  ssize_t put = 0;
  do {
    put = ::write(fd_.get(), text.data(), text.size());
  } while (put < 0 && errno == EINTR);
  if (put != static_cast<ssize_t>(text.size())) {
    healthy_ = false;
    return put < 0 ? Error::from_errno("events") : Error("events: short write", EIO);
  }
  return {};
}

}  // namespace cofferdam::log
