// Guard: the decision about each access to a path, and its event.
//
// One per mount. Decisions are FsRules'; a refusal is written to the sandbox's events and comes
// back as the error that the workload sees.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/log/event_log.h"
#include "common/policy/fs_rules.h"
#include "fsproxy/overlay/overlay.h"

namespace cofferdam::fsproxy {

class Guard final : public overlay::Observer {
 public:
  // `mount`: the mount's name in events. `events` must outlive the guard.
  Guard(std::string mount, log::EventLog& events) : mount_(std::move(mount)), events_(events) {}

  // Whether a name may come into being at `path`: EACCES when hidden or read only.
  Status check_create(const policy::FsRules& rules, std::string_view act, const std::string& path,
                      bool is_dir);
  // Whether what lies at `path` may change: ENOENT when hidden, EACCES when read only.
  Status check_change(const policy::FsRules& rules, std::string_view act, const std::string& path,
                      bool is_dir);
  // A device that somebody tried to make.
  Error special_file(std::string_view act, const std::string& path);

  // --- what the overlay tells
  void refused(std::string_view act, const std::string& path,
               const policy::FsDecision& decision) override;
  void quota_exceeded(std::string_view act, const std::string& path) override;
  void changed_under(const std::string& path, overlay::NodeId node) override;

  // Called after a lower file was seen to have changed while it was open.
  void on_changed_under(std::function<void(overlay::NodeId)> call) { changed_ = std::move(call); }
  std::uint64_t denials() const { return denials_; }

 private:
  void write(policy::Verdict verdict, policy::Reason reason, std::string_view rule,
             std::string_view act, const std::string& path);

  std::string mount_;
  log::EventLog& events_;
  std::function<void(overlay::NodeId)> changed_;
  std::atomic<std::uint64_t> denials_{0};
};

}  // namespace cofferdam::fsproxy
