// The copy-up of a large file in two halves, and files whose names go to another node.
#include <fcntl.h>
#include <unistd.h>

#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {

std::unique_ptr<CopyJob> Overlay::begin_copy(NodeId id) {
  Node* node = nodes_.find(id);
  if (!options_.writable || node == nullptr || node->upper || !node->is_regular() ||
      !attached(*node) || prepared_.contains(id)) {
    return nullptr;
  }
  const NodeName& at = node->names.front();
  const auto dir = below_dir(*at.parent, node->frozen);
  if (!dir.ok()) return nullptr;
  const auto lower = stat_lower((*dir)->get(), at.name);
  if (!lower.ok() || !is_object_of(*node, *lower) ||
      lower->st.st_size <= static_cast<off_t>(Records::kStoreLimit)) {
    return nullptr;
  }
  auto job = std::make_unique<CopyJob>();
  auto from = open_lower((*dir)->get(), at.name, lower->identity, LowerKind::kKnown);
  if (!from.ok()) return nullptr;
  job->from = std::move(from->fd);
  job->version = version_of(lower->st);
  // What the ordinary way refuses, it also tells.
  const std::uint64_t bytes = static_cast<std::uint64_t>(lower->st.st_blocks) * 512;
  if (!ledger_.reserve(bytes, 0)) return nullptr;
  job->reserved = bytes;
  job->staged = staged_name();
  job->to.reset(::openat(work_.get(), job->staged.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!job->to) {
    ledger_.add(-static_cast<std::int64_t>(bytes), 0);
    return nullptr;
  }
  ++node->pins;
  return job;
}

void Overlay::end_copy(NodeId id, std::unique_ptr<CopyJob> job) {
  Node* node = nodes_.find(id);
  if (node != nullptr) {
    --node->pins;
    nodes_.release(node);
    node = nodes_.find(id);
  }
  if (node == nullptr || node->upper || !job->done) return drop_prepared(std::move(job));
  prepared_[id] = std::move(job);
}

void Overlay::drop_prepared(std::unique_ptr<CopyJob> job) {
  (void)::unlinkat(work_.get(), job->staged.c_str(), 0);
  ledger_.add(-static_cast<std::int64_t>(job->reserved), 0);
}

void Overlay::forget_copy(NodeId id) {
  const auto found = prepared_.find(id);
  if (found == prepared_.end()) return;
  std::unique_ptr<CopyJob> job = std::move(found->second);
  prepared_.erase(found);
  drop_prepared(std::move(job));
}

// The prepared copy of what lower has now, if there is one.
std::unique_ptr<CopyJob> Overlay::take_prepared(const Node& node, const LowerStat& lower) {
  const auto found = prepared_.find(node.id);
  if (found == prepared_.end()) return nullptr;
  std::unique_ptr<CopyJob> job = std::move(found->second);
  prepared_.erase(found);
  if (job->version == version_of(lower.st)) return job;
  drop_prepared(std::move(job));
  return nullptr;
}

void Overlay::account_now(OpenFile& file) {
  if (!file.lower) account(*file.node, file.fd.get(), 0);
}

bool Overlay::changed_since_told(const OpenFile& file) const {
  struct stat st {};
  return file.writable &&
         (::fstat(file.fd.get(), &st) != 0 || to_ns(st.st_mtim) != to_ns(file.node->last.st_mtim));
}

Overlay::Quota Overlay::quota() const {
  const LedgerTotals used = ledger_.used();
  const LedgerTotals limit = ledger_.limit();
  return {limit.bytes, limit.bytes - std::min(limit.bytes, used.bytes)};
}

bool Overlay::sends_on(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr || !node->superseded) return false;
  node->sent_on = !node->sent_on;
  return node->sent_on;
}

Status Overlay::supersede(NodeId id) {
  TRY_ASSIGN(Node * node, live(id));
  if (!node->is_regular()) return Error::from_errno("supersede", EINVAL);
  const Pin keep(nodes_, *node);
  const nlink_t links = node->last.st_nlink;
  open_late(*node);
  node->superseded = true;
  while (!node->names.empty()) {
    const NodeName at = node->names.back();
    detach(*node, *at.parent, at.name);
  }
  node->last.st_nlink = links;
  return {};
}

}  // namespace cofferdam::overlay
