#include "fsproxy/guard/guard.h"

#include <spdlog/spdlog.h>

namespace cofferdam::fsproxy {

using policy::FsDecision;
using policy::FsRules;
using policy::Reason;
using policy::Verdict;

void Guard::write(Verdict verdict, Reason reason, std::string_view rule, std::string_view act,
                  const std::string& path) {
  if (verdict == Verdict::kDeny) ++denials_;
  const Status written = events_.write("file", {{"verdict", policy::to_text(verdict)},
                                                {"reason", policy::to_text(reason)},
                                                {"rule", rule},
                                                {"retryable", policy::is_retryable(reason)},
                                                {"mount", mount_},
                                                {"path", path},
                                                {"act", act}});
  if (!written.ok()) spdlog::warn("event not recorded: {}", written.error().message());
}

Status Guard::check_create(const FsRules& rules, std::string_view act, const std::string& path,
                           bool is_dir) {
  const FsDecision decision = rules.decide(path, is_dir);
  if (decision.changeable()) return {};
  write(Verdict::kDeny, decision.reason(), decision.rule, act, path);
  return Error::from_errno(act, EACCES);
}

Status Guard::check_change(const FsRules& rules, std::string_view act, const std::string& path,
                           bool is_dir) {
  const FsDecision decision = rules.decide(path, is_dir);
  if (decision.changeable()) return {};
  write(Verdict::kDeny, decision.reason(), decision.rule, act, path);
  return Error::from_errno(act, decision.visible() ? EACCES : ENOENT);
}

Error Guard::special_file(std::string_view act, const std::string& path) {
  write(Verdict::kDeny, Reason::kSpecialFile, "", act, path);
  return Error::from_errno(act, EPERM);
}

void Guard::refused(std::string_view act, const std::string& path, const FsDecision& decision) {
  write(Verdict::kDeny, decision.reason(), decision.rule, act, path);
}

void Guard::quota_exceeded(std::string_view act, const std::string& path) {
  write(Verdict::kDeny, Reason::kQuotaExceeded, "quota", act, path);
}

void Guard::changed_under(const std::string& path, overlay::NodeId node) {
  write(Verdict::kAllow, Reason::kChangedUnder, "", "read", path);
  if (changed_) changed_(node);
}

}  // namespace cofferdam::fsproxy
