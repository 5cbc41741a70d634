#include "common/log/event_log.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

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

EventLog::EventLog(os::UniqueFd fd, EventContext context)
    : fd_(std::move(fd)), about_(std::move(context)) {
  make_context();
}

void EventLog::make_context() {
  context_.clear();
  append_field(context_, "manifest", about_.manifest);
  append_field(context_, "operation", about_.operation);
  append_field(context_, "sandbox", about_.sandbox);
  append_field(context_, "service", about_.service);
}

void EventLog::set_manifest(std::string digest) {
  const std::lock_guard lock(mutex_);
  about_.manifest = std::move(digest);
  make_context();
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

void EventLog::append_time(std::string& to) {
  const WallTime now = std::chrono::system_clock::now();
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  if (micros / 1'000'000 != second_) {
    second_ = micros / 1'000'000;
    second_text_ = to_rfc3339(now).substr(0, 19);
  }
  to += second_text_;
  std::string digits = std::to_string(1'000'000 + micros % 1'000'000);
  digits.front() = '.';
  to += digits;
  to += 'Z';
}

void EventLog::render(std::string& to, std::string_view event, std::string_view fields,
                      std::string_view more) {
  to += "{\"event\":";
  append_json_string(to, event);
  for (const std::string_view part : {fields, more}) {
    if (part.empty()) continue;
    to += ',';
    to += part;
  }
  to += context_;
  to += ",\"time\":\"";
  append_time(to);
  to += "\"}\n";
}

Status EventLog::put(std::string_view event, std::string_view fields, std::string_view more) {
  render(lines_, event, fields, more);
  ++waiting_;
  if (batching_ && lines_.size() < kBatch) return {};
  return flush_lines();
}

Status EventLog::flush_lines() {
  if (lines_.empty()) return {};
  // What was lost comes before what is not.
  std::uint64_t extra = 0;
  if (lost_ > 0) {
    std::string told;
    render(told, "events_lost", "\"count\":" + std::to_string(lost_), {});
    lines_.insert(0, told);
    extra = 1;
  }
  std::uint64_t done = 0;
  Status status = write_out(lines_, kMaxBytes - kReserve, done);
  if (extra > 0 && done > 0) lost_ = 0;
  const std::uint64_t lost = waiting_ + extra - std::max(done, extra);
  lost_ += lost;
  lost_in_all_ += lost;
  written_ += done;
  waiting_ = 0;
  lines_.clear();
  healthy_ = status.ok();
  if (!status.ok() && status.error().error_number() == EFBIG) tell_full();
  return status;
}

bool EventLog::try_recover() {
  const std::lock_guard lock(mutex_);
  const Time now = std::chrono::steady_clock::now();
  if (healthy_ || now - tried_ < kRetry) return healthy_;
  tried_ = now;
  if (!lines_.empty()) return flush_lines().ok();
  std::string told;
  render(told, "events_lost", "\"count\":" + std::to_string(lost_), {});
  std::uint64_t done = 0;
  if (!write_out(told, kMaxBytes - kReserve, done).ok()) return false;
  ++written_;
  lost_ = 0;
  healthy_ = true;
  return true;
}

// The last line of a file that is full.
void EventLog::tell_full() {
  if (told_full_) return;
  told_full_ = true;
  std::string told;
  render(told, "record_full", "\"limit_bytes\":" + std::to_string(kMaxBytes), {});
  std::uint64_t done = 0;
  (void)write_out(told, kMaxBytes, done).ok();
}

Status EventLog::write_out(std::string_view lines, std::uint64_t limit, std::uint64_t& done) {
  struct stat st {};
  if (::fstat(fd_.get(), &st) != 0) return Error::from_errno("events");
  if (!S_ISREG(st.st_mode)) return write_to_reader(lines, done);
  // Others write to the file too.
  if (static_cast<std::uint64_t>(st.st_size) + lines.size() > limit) {
    return Error::from_errno("events", EFBIG);
  }
  return write_to_file(lines, done);
}

Status EventLog::write_to_file(std::string_view lines, std::uint64_t& done) {
  // A torn line is ended, so that only it is lost to readers.
  const std::string mended = torn_ ? "\n" + std::string(lines) : std::string();
  const std::string_view text = torn_ ? std::string_view(mended) : lines;
  ssize_t count = 0;
  do {
    count = ::write(fd_.get(), text.data(), text.size());
  } while (count < 0 && errno == EINTR);
  const int error_number = count < 0 ? errno : ENOSPC;
  const std::string_view put = text.substr(0, count < 0 ? 0 : static_cast<std::size_t>(count));
  done = static_cast<std::uint64_t>(std::count(put.begin(), put.end(), '\n'));
  if (torn_ && done > 0) --done;
  if (put.size() == text.size()) {
    torn_ = false;
    return {};
  }
  if (!put.empty()) torn_ = put.back() != '\n';
  return Error::from_errno("events", error_number);
}

// One line at a time: poll(2) promises room for PIPE_BUF bytes, and more would wait for the reader.
Status EventLog::write_to_reader(std::string_view lines, std::uint64_t& done) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);
    pollfd room{fd_.get(), POLLOUT, 0};
    if (::poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0 || line.size() > PIPE_BUF) {
      return Error::from_errno("events", EAGAIN);
    }
    if (::write(fd_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      return Error::from_errno("events");
    }
    ++done;
    lines.remove_prefix(line.size());
  }
  return {};
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
