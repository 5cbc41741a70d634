// EventLog: appends audit facts to a sandbox's events.jsonl, one JSON object a line.
//
// Field names and the rows of each event are in docs/events.md. The file is opened O_APPEND by the
// supervisor and inherited by each service; a line is one write(2), so that lines of several
// processes never mix. Thread safe. No payload, header values or query strings ever go in here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::log {

// What every event carries.
struct EventContext {
  std::string sandbox;    // id
  std::string operation;  // id of the run or exec that caused it
  std::string manifest;   // digest, "sha256:<hex>"
  std::string service;    // supervisor | fsproxy | egressproxy | engine
};

class EventLog final {
 public:
  // Bytes a sandbox's event file may reach; past it write() fails with EFBIG (and a service that
  // cannot record refuses what it would have had to record).
  static constexpr std::uint64_t kMaxBytes = 256ULL << 20U;
  // Equal events within the window before they are folded into one "suppressed" record.
  static constexpr int kRepeatLimit = 100;
  static constexpr std::chrono::seconds kRepeatWindow{10};

  EventLog(os::UniqueFd fd, EventContext context);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Writes {"time","sandbox","operation","manifest","service","event", …fields}. Strings are made
  // valid UTF-8. A failure is returned and also remembered in healthy().
  Status write(std::string_view event, Json fields);

  bool healthy() const { return healthy_; }
  int fd() const { return fd_.get(); }

 private:
  struct Repeat {
    std::chrono::steady_clock::time_point since;
    int count = 0;
    int suppressed = 0;
  };
  Status append(std::string_view event, Json fields);
  bool suppress(std::string_view event, const Json& fields);
  void flush_suppressed(std::chrono::steady_clock::time_point now, bool all);

  os::UniqueFd fd_;
  EventContext context_;
  std::mutex mutex_;
  std::map<std::string, Repeat> repeats_;
  bool healthy_ = true;
};

}  // namespace cofferdam::log
