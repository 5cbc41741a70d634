#include "orchestrator/reader/service.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/os/fd_passing.h"
#include "common/os/files.h"
#include "orchestrator/reader/protocol.h"
#include "orchestrator/reader/refs.h"
#include "orchestrator/reader/walk.h"

namespace cofferdam::orchestrator::reader {
namespace {

constexpr std::size_t kMaxIndexBytes = std::size_t{512} << 20U;  // of all packs together
constexpr std::size_t kMaxPackedRefs = 64U << 20U;

const Error& host_is_gone() {
  static const Error kError("the other side is gone");
  return kError;
}

// The pack's descriptor lives as long as its source of bytes.
ByteSource owned_source(os::UniqueFd fd) {
  auto shared = std::make_shared<os::UniqueFd>(std::move(fd));
  return [shared](std::uint64_t offset, std::size_t limit) {
    return source_of_file(shared->get())(offset, limit);
  };
}

class Service final : public ObjectHost {
 public:
  explicit Service(int socket) : socket_(socket) {}

  Status run() {
    TRY(take_material());
    if (branches_.size() > kMaxBranches || refused_.size() > kMaxBranches) {
      return Error("more branches than are taken home");
    }
    for (const auto& [name, reason] : refused_) TRY(refuse(name, reason));
    for (const auto& [name, id] : branches_) {
      TRY(tell(FromReader::kBranch, std::string(id.raw()) + name));
    }
    Walk walk(*this, packs_, limits_);
    for (const auto& [name, id] : branches_) {
      const Status taken = walk.take(id);
      if (walk.broken()) return taken;
      TRY(taken.ok() ? tell(FromReader::kComplete, name) : refuse(name, taken.error().message()));
    }
    return tell(FromReader::kEnd);
  }

  Status tell(FromReader kind, std::string_view rest = {}) const {
    return os::send_packet(socket_, packet(kind, rest));
  }

  Result<std::vector<bool>> missing(const std::vector<ObjectId>& ids) override {
    std::string raw;
    for (const ObjectId& id : ids) raw += id.raw();
    TRY(tell(FromReader::kAsk, raw));
    TRY_ASSIGN(const os::Packet answer, receive());
    if (answer.bytes.size() != ids.size() + 1 || answer.bytes[0] != char(ToReader::kAnswer)) {
      return Error("not an answer");
    }
    std::vector<bool> result;
    for (std::size_t i = 0; i < ids.size(); ++i) result.push_back(answer.bytes[i + 1] != 0);
    return result;
  }

  Result<std::optional<LooseObject>> loose(const ObjectId& id) override {
    TRY(tell(FromReader::kWant, id.raw()));
    TRY_ASSIGN(const os::Packet answer, receive());
    if (answer.bytes[0] == char(ToReader::kNone)) return std::optional<LooseObject>();
    if (answer.bytes[0] != char(ToReader::kLoose) || answer.fds.size() != 1) {
      return Error("not an answer");
    }
    TRY_ASSIGN(LooseObject object,
               read_loose_object(source_of_file(answer.fds[0].get()), limits_.object_bytes));
    return std::optional<LooseObject>(std::move(object));
  }

  Status give(ObjectType type, const ObjectId& id, std::string_view content) override {
    std::string head(1, static_cast<char>(type));
    head += id.raw();
    for (unsigned i = 0; i < 8; ++i) {
      head += static_cast<char>((static_cast<std::uint64_t>(content.size()) >> (8 * i)) & 0xffU);
    }
    TRY(tell(FromReader::kObject, head));
    for (; !content.empty(); content.remove_prefix(std::min(kChunkBytes, content.size()))) {
      TRY(tell(FromReader::kChunk, content.substr(0, kChunkBytes)));
    }
    return {};
  }

 private:
  Result<os::Packet> receive() const {
    TRY_ASSIGN(os::Packet got, os::receive_packet(socket_));
    if (got.end_of_stream || got.bytes.empty()) return host_is_gone();
    return got;
  }

  Status refuse(const std::string& name, const std::string& reason) const {
    std::string text = name.substr(0, kMaxRefusedName);
    text += '\0';
    return tell(FromReader::kRefused, text + reason.substr(0, 1000));
  }

  Status take_material() {
    while (true) {
      TRY_ASSIGN(os::Packet got, receive());
      const std::string_view rest = std::string_view(got.bytes).substr(1);
      switch (static_cast<ToReader>(got.bytes[0])) {
        case ToReader::kHead:
          TRY(take_head(rest));
          break;
        case ToReader::kRef:
          take_ref(rest);
          break;
        case ToReader::kPacked:
          if (got.fds.size() != 1) return Error("no descriptor");
          TRY(take_packed_refs(got.fds[0].get()));
          break;
        case ToReader::kPack:
          if (got.fds.size() != 2) return Error("no descriptors");
          TRY(take_pack(got.fds[0].get(), std::move(got.fds[1])));
          break;
        case ToReader::kGo:
          return {};
        default:
          return Error("an unknown packet");
      }
    }
  }

  Status take_head(std::string_view bytes) {
    const auto value = parse_ref_file(bytes);
    if (!value.ok()) return refuse("HEAD", value.error().message());
    if (value->id) {
      branches_["HEAD"] = *value->id;  // no branch has that name
      return tell(FromReader::kHeadId, value->id->raw());
    }
    return tell(FromReader::kHeadBranch, value->branch);
  }

  void take_ref(std::string_view bytes) {
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    const std::string name(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (!is_branch_name(name)) {
      refused_.emplace_back(name, "not the name of a branch");
      return;
    }
    const auto value = parse_ref_file(bytes);
    if (!value.ok() || !value->id) {
      refused_.emplace_back(name,
                            value.ok() ? "it stands for another branch" : value.error().message());
      branches_.erase(name);
      return;
    }
    branches_[name] = *value->id;  // a loose one stands before a packed one
    loose_.insert(name);
  }

  Status take_packed_refs(int fd) {
    TRY_ASSIGN(const std::string bytes, os::read_fd(fd, kMaxPackedRefs).context("packed-refs"));
    TRY_ASSIGN(const PackedRefs refs, parse_packed_refs(bytes));
    for (const std::string& name : refs.refused) {
      refused_.emplace_back(name, "not the name of a branch");
    }
    for (const PackedBranch& branch : refs.branches) {
      if (!loose_.contains(branch.name)) branches_[branch.name] = branch.id;
    }
    return {};
  }

  Status take_pack(int index_fd, os::UniqueFd pack) {
    TRY_ASSIGN(std::string bytes,
               os::read_fd(index_fd, kMaxIndexBytes - index_bytes_).context("a pack's index"));
    index_bytes_ += bytes.size();
    auto index = PackIndex::parse(std::move(bytes));
    // Its objects are then missing, which the branches that need them will tell.
    if (!index.ok()) return {};
    packs_.emplace_back(std::move(index).value(), owned_source(std::move(pack)),
                        limits_.object_bytes);
    return {};
  }

  int socket_;
  WalkLimits limits_;
  std::map<std::string, ObjectId> branches_;
  std::set<std::string> loose_;
  std::vector<std::pair<std::string, std::string>> refused_;
  std::vector<Pack> packs_;
  std::size_t index_bytes_ = 0;
};

}  // namespace

int serve(int socket) {
  Service service(socket);
  const Status done = service.run();
  if (done.ok()) return 0;
  return refuse_to_serve(socket, done.error().message());
}

int refuse_to_serve(int socket, std::string_view reason) {
  (void)os::send_packet(socket, packet(FromReader::kFailed, reason)).ok();
  return 1;
}

}  // namespace cofferdam::orchestrator::reader
