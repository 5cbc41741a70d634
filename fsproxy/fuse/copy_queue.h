// CopyQueue: requests that wait for the copy of a large lower file. The copy is SlowWork; the
// requests go on when it is there, or end with EINTR when their process was interrupted; a copy
// that nobody waits for is given up.
//
// Used by the mount's one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fsproxy/fuse/reply.h"
#include "fsproxy/fuse/slow_work.h"

namespace cofferdam::fsproxy {

class CopyQueue final {
 public:
  CopyQueue(overlay::Overlay& view, SlowWork& slow) : view_(view), slow_(slow) {}
  ~CopyQueue() { give_up(); }

  using Again = std::function<void(fuse_req_t)>;
  // Whether the request waits for the copy of `id` now; `again` answers it later. Else there is
  // nothing long to do.
  bool defer(fuse_req_t req, overlay::NodeId id, Again again);
  // After each request: ends those that were interrupted.
  void sweep();
  // Tells running copies to end; before SlowWork::stop().
  void give_up();

 private:
  struct Waiting {
    fuse_req_t req;
    Again again;
  };
  struct Copy {
    std::shared_ptr<std::unique_ptr<overlay::CopyJob>> job;
    std::vector<Waiting> waiting;
  };
  static void interrupted(fuse_req_t req, void* self);
  void finish(overlay::NodeId id);

  overlay::Overlay& view_;
  SlowWork& slow_;
  std::map<overlay::NodeId, Copy> copies_;
  bool interrupted_ = false;
};

}  // namespace cofferdam::fsproxy
