// EventLog: appends audit facts to a sandbox's events.jsonl, one JSON object a line.
//
// Field names and the rows of each event are in docs/events.md. The file is opened O_APPEND by the
// supervisor and inherited by each service; what is written is always whole lines in one write(2),
// so that lines of several processes never mix. Thread safe. No payload, header values or query
// strings ever go in here.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/log/event_line.h"
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
  // Space kept below kMaxBytes for the one line that says that the record is full.
  static constexpr std::uint64_t kReserve = 4096;
  // How often a log that failed is tried again.
  static constexpr std::chrono::seconds kRetry{1};
  // Equal events within the window before they are folded into one "suppressed" record.
  static constexpr int kRepeatLimit = 100;
  static constexpr std::chrono::seconds kRepeatWindow{10};

  EventLog(os::UniqueFd fd, EventContext context);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Writes {"event", …fields, "time", "sandbox", "operation", "manifest", "service"}. Strings are
  // made valid UTF-8. Never waits for a reader: where a pipe is full, the event is lost. A failure
  // is returned, counted in lost() and remembered in healthy(); once writing works again, an
  // `events_lost` record tells how many there were.
  Status write(std::string_view event, const Json& fields);
  Status write_line(std::string_view event, const EventLine& line);

  // Lines wait in memory, in order, until flush(), the destructor, or kBatch of them: for a service
  // with an event loop, which flushes once a turn. A failure is then told by flush() and healthy().
  void set_batching(bool on);
  // Whether anything waits.
  bool pending() const;
  Status flush();

  // Whether the last write worked.
  bool healthy() const { return healthy_; }
  // For a log that is not healthy: tries again, at most every kRetry, with what waits and the
  // record of what was lost. True when it works again.
  bool try_recover();
  // Lines so far.
  std::uint64_t written() const { return written_; }
  std::uint64_t lost() const { return lost_in_all_; }
  // What further events carry; the manifest changes with a grant.
  void set_manifest(std::string digest);
  int fd() const { return fd_.get(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Sums = std::array<EventLine::Sum, EventLine::kMaxSums>;
  // One kind of event within its window.
  struct Repeat {
    std::string event;
    std::string key;  // the event, '{', and the fields in which equal events are equal
    Time since;
    int count = 0;
    int suppressed = 0;
    Sums sums{};  // of the suppressed ones
  };
  using Repeats = std::list<Repeat>;  // oldest window first

  bool suppress(std::string_view event, std::string_view fields, const Sums& sums);
  void end_windows(Time now, bool all);
  void end_first_window();
  Status put(std::string_view event, std::string_view fields, std::string_view more);
  void render(std::string& to, std::string_view event, std::string_view fields,
              std::string_view more);
  Status flush_lines();
  // Writes whole lines; `done` says how many of them are there, also after an error.
  Status write_out(std::string_view lines, std::uint64_t limit, std::uint64_t& done);
  Status write_to_file(std::string_view lines, std::uint64_t& done);
  Status write_to_reader(std::string_view lines, std::uint64_t& done);
  void tell_full();
  void append_time(std::string& to);
  void make_context();

  os::UniqueFd fd_;
  EventContext about_;
  std::string context_;  // about_ of every line, as JSON text
  mutable std::mutex mutex_;
  Repeats repeats_;
  std::unordered_map<std::string_view, Repeats::iterator> by_key_;  // views of Repeat::key
  std::string key_;                                                 // scratch
  std::string lines_;                                               // not yet written
  std::uint64_t waiting_ = 0;                                       // their number
  bool batching_ = false;
  std::int64_t second_ = -1;
  std::string second_text_;  // "2026-01-02T03:04:05"
  bool healthy_ = true;
  bool torn_ = false;       // the last line was written in part
  bool told_full_ = false;  // by this process
  std::uint64_t written_ = 0;
  std::uint64_t lost_ = 0;  // since the last record of it
  std::uint64_t lost_in_all_ = 0;
  Time tried_;
};

}  // namespace cofferdam::log
