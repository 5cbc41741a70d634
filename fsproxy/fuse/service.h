// Service: all mounts of one sandbox, from inherited descriptors to the orderly end.
#pragma once

#include <memory>
#include <vector>

#include "common/os/pipes.h"
#include "fsproxy/fuse/arguments.h"
#include "fsproxy/fuse/control.h"
#include "fsproxy/fuse/session.h"

namespace cofferdam::fsproxy {

class Service final {
 public:
  // Opens everything and enters the cage. SIGTERM must be blocked in the calling thread.
  static Result<std::unique_ptr<Service>> create(const Arguments& arguments);
  // Serves until liveness EOF, SIGTERM or the end of every mount.
  void run();

 private:
  Service() = default;
  Json stats() const;
  // The reply to POST /checkpoint.
  Answer checkpoint(const std::string& body);
  // Bytes on disk: what is charged and what is not yet.
  std::uint64_t written() const;
  bool is_over_quota() const;
  Status start_helper();

  FsPolicy policy_;
  std::unique_ptr<log::EventLog> events_;
  std::unique_ptr<overlay::Ledger> ledger_;
  std::unique_ptr<BackingHelper> helper_;  // outlives the sessions
  std::vector<std::unique_ptr<Session>> sessions_;
  os::UniqueFd liveness_;
  os::UniqueFd control_;
  os::UniqueFd terminate_;  // signalfd
  os::Pipe news_;           // from the mounts, see Session::News
};

}  // namespace cofferdam::fsproxy
