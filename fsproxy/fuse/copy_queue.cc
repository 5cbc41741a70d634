#include "fsproxy/fuse/copy_queue.h"

namespace cofferdam::fsproxy {

bool CopyQueue::defer(fuse_req_t req, overlay::NodeId id, Again again) {
  auto found = copies_.find(id);
  if (found == copies_.end()) {
    auto job = view_.begin_copy(id);
    if (!job) return false;
    Copy copy;
    copy.job = std::make_shared<std::unique_ptr<overlay::CopyJob>>(std::move(job));
    slow_.run([this, id, job = copy.job] {
      (*job)->run();
      slow_.complete([this, id] { finish(id); });
    });
    found = copies_.emplace(id, std::move(copy)).first;
  }
  found->second.waiting.push_back({req, std::move(again)});
  fuse_req_interrupt_func(req, interrupted, this);
  return true;
}

// Called while the request is locked: it is answered by sweep().
void CopyQueue::interrupted(fuse_req_t, void* self) {
  static_cast<CopyQueue*>(self)->interrupted_ = true;
}

void CopyQueue::sweep() {
  if (!interrupted_) return;
  interrupted_ = false;
  for (auto& [id, copy] : copies_) {
    std::erase_if(copy.waiting, [](const Waiting& waiting) {
      if (fuse_req_interrupted(waiting.req) == 0) return false;
      fuse_reply_err(waiting.req, EINTR);
      return true;
    });
    if (copy.waiting.empty()) (*copy.job)->cancel = true;
  }
}

void CopyQueue::finish(overlay::NodeId id) {
  const auto found = copies_.find(id);
  const Copy copy = std::move(found->second);
  copies_.erase(found);
  view_.end_copy(id, std::move(*copy.job));
  for (const Waiting& waiting : copy.waiting) {
    fuse_req_interrupt_func(waiting.req, nullptr, nullptr);
    waiting.again(waiting.req);
  }
  view_.forget_copy(id);
}

void CopyQueue::give_up() {
  for (auto& [id, copy] : copies_) (*copy.job)->cancel = true;
}

}  // namespace cofferdam::fsproxy
