#include "common/log/event_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text_time.h"

namespace cofferdam::log {
namespace {

constexpr std::size_t kMaxKeys = 4096;
constexpr std::size_t kBatch = 65536;  // bytes

constexpr std::string_view kVolatile[] = {"duration_ms", "bytes_up", "bytes_down", "connection",
                                          "source_port"};

// Canonical JSON of an object without its braces.
std::string members_of(const Json& object) {
  if (!object.is_object() || object.empty()) return {};
  const std::string text = canonical_json(object);
  return text.substr(1, text.size() - 2);
}

void append_field(std::string& to, std::string_view key, std::string_view value) {
  to += ",\"";
  to += key;
  to += "\":";
  append_json_string(to, value);
}

}  // namespace

EventLog::EventLog(os::UniqueFd fd, EventContext context) : fd_(std::move(fd)) {
  append_field(context_, "manifest", context.manifest);
  append_field(context_, "operation", context.operation);
  append_field(context_, "sandbox", context.sandbox);
  append_field(context_, "service", context.service);
}

EventLog::~EventLog() {
  const std::lock_guard lock(mutex_);
  end_windows(std::chrono::steady_clock::now(), true);
  (void)flush_lines().ok();
}

// What makes two events equal: all but the fields that differ by nature.
Status EventLog::write(std::string_view event, const Json& fields) {
  Json stable = fields;
  Json changing = Json::object();
  for (const std::string_view key : kVolatile) {
    const auto found = stable.find(key);
    if (found == stable.end()) continue;
    changing[std::string(key)] = *found;
    stable.erase(found);
  }
  const std::string text = members_of(stable);
  const std::lock_guard lock(mutex_);
  if (suppress(event, text, {})) return {};
  return put(event, text, members_of(changing));
}

Status EventLog::write_line(std::string_view event, const EventLine& line) {
  const std::lock_guard lock(mutex_);
  if (suppress(event, line.stable(), line.sums())) return {};
  return put(event, line.stable(), line.changing());
}

bool EventLog::suppress(std::string_view event, std::string_view fields, const Sums& sums) {
  const Time now = std::chrono::steady_clock::now();
  end_windows(now, false);
  key_.assign(event);
  key_ += '{';
  key_ += fields;
  auto found = by_key_.find(key_);
  if (found == by_key_.end()) {
    if (repeats_.size() >= kMaxKeys) end_first_window();
    repeats_.push_back({std::string(event), key_, now});
    found = by_key_.emplace(repeats_.back().key, std::prev(repeats_.end())).first;
  }
  Repeat& repeat = *found->second;
  if (++repeat.count <= kRepeatLimit) return false;
  ++repeat.suppressed;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    repeat.sums[i].key = sums[i].key;
    repeat.sums[i].value += sums[i].value;
  }
  return true;
}

void EventLog::end_windows(Time now, bool all) {
  while (!repeats_.empty() && (all || now - repeats_.front().since >= kRepeatWindow)) {
    end_first_window();
  }
}

void EventLog::end_first_window() {
  const Repeat& repeat = repeats_.front();
  if (repeat.suppressed > 0) {
    EventLine shown;
    for (const EventLine::Sum& sum : repeat.sums) {
      if (!sum.key.empty()) shown.add_measure(sum.key, sum.value);
    }
    std::string fields = repeat.key.substr(repeat.event.size());
    if (!shown.changing().empty()) {
      if (fields.size() > 1) fields += ',';
      fields += shown.changing();
    }
    fields += '}';
    EventLine line;
    line.add("of", repeat.event);
    line.add("count", static_cast<std::uint64_t>(repeat.suppressed));
    line.add("fields", fields);
    (void)put("suppressed", line.stable(), {}).ok();
  }
  by_key_.erase(repeat.key);
  repeats_.pop_front();
}

void EventLog::append_time() {
  const WallTime now = std::chrono::system_clock::now();
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  if (micros / 1'000'000 != second_) {
    second_ = micros / 1'000'000;
    second_text_ = to_rfc3339(now).substr(0, 19);
  }
  lines_ += second_text_;
  std::string digits = std::to_string(1'000'000 + micros % 1'000'000);
  digits.front() = '.';
  lines_ += digits;
  lines_ += 'Z';
}

Status EventLog::put(std::string_view event, std::string_view fields, std::string_view more) {
  lines_ += "{\"event\":";
  append_json_string(lines_, event);
  for (const std::string_view part : {fields, more}) {
    if (part.empty()) continue;
    lines_ += ',';
    lines_ += part;
  }
  lines_ += context_;
  lines_ += ",\"time\":\"";
  append_time();
  lines_ += "\"}\n";
  if (batching_ && lines_.size() < kBatch) return {};
  return flush_lines();
}

Status EventLog::check_room() const {
  struct stat st {};
  if (::fstat(fd_.get(), &st) != 0) return Error::from_errno("events");
  const bool fits =
      !S_ISREG(st.st_mode) || static_cast<std::uint64_t>(st.st_size) + lines_.size() <= kMaxBytes;
  if (!fits) return Error::from_errno("events", EFBIG);
  return {};
}

Status EventLog::flush_lines() {
  if (lines_.empty()) return {};
  Status status = check_room();
  if (status.ok()) {
    ssize_t put = 0;
    do {
      put = ::write(fd_.get(), lines_.data(), lines_.size());
    } while (put < 0 && errno == EINTR);
    if (put < 0) {
      status = Error::from_errno("events");
    } else if (put != static_cast<ssize_t>(lines_.size())) {
      status = Error("events: short write", EIO);
    }
  }
  lines_.clear();
  if (!status.ok()) healthy_ = false;
  return status;
}

void EventLog::set_batching(bool on) {
  const std::lock_guard lock(mutex_);
  batching_ = on;
}

bool EventLog::pending() const {
  const std::lock_guard lock(mutex_);
  return !lines_.empty();
}

Status EventLog::flush() {
  const std::lock_guard lock(mutex_);
  return flush_lines();
}

}  // namespace cofferdam::log
