#include "orchestrator/changes/reader_session.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <unordered_set>

#include "common/os/fd_passing.h"
#include "common/os/pipes.h"
#include "common/os/process.h"
#include "orchestrator/reader/protocol.h"
#include "orchestrator/reader/refs.h"
#include "orchestrator/reader/walk.h"

namespace cofferdam::orchestrator::changes {
namespace {

using reader::FromReader;
using reader::ObjectId;
using reader::ObjectType;
using reader::ToReader;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxPacks = 1000;
constexpr std::size_t kMaxKeptBytes = std::size_t{512} << 20U;  // commits and trees
constexpr std::size_t kMaxReason = 1000;
constexpr std::size_t kMaxLink = 4096;
constexpr std::chrono::minutes kSilence{3};
constexpr std::chrono::minutes kPatience{20};

class Session final {
 public:
  Session(const GitLayer& layer, const HomeRepository& home, const TakeObject& take)
      : layer_(layer), home_(home), take_(take) {}

  Result<SandboxCommits> run(const std::filesystem::path& program) {
    TRY_ASSIGN(os::SocketPair pair, os::make_packet_pair());
    os::SpawnOptions options;
    options.argv = {program.string()};
    options.env = std::vector<std::string>{};
    options.fds = {{pair.second.get(), reader::kReaderSocket}};
    options.die_with_parent = true;
    options.new_session = true;  // Ctrl-C is for this process
    TRY_ASSIGN(const os::ChildProcess process, os::ChildProcess::spawn(options));
    pair.second.reset();
    socket_ = pair.first.get();
    Status done = hand_over();
    if (done.ok()) done = listen();
    if (!done.ok()) return done.error().context("cofferdam-reader");
    TRY_ASSIGN(submodules_, home_.submodules());
    complete();
    return std::move(commits_);
  }

 private:
  Status tell(ToReader kind, std::string_view rest = {}, const std::vector<int>& fds = {}) const {
    return os::send_packet(socket_, reader::packet(kind, rest), fds);
  }

  Status hand_over() {
    if (const auto head = layer_.head(reader::kMaxRefFile)) TRY(tell(ToReader::kHead, *head));
    TRY(layer_.for_each_branch(reader::kMaxRefFile,
                               [&](const std::string& name, const std::string& bytes) {
                                 std::string text = name;
                                 text += '\0';
                                 return tell(ToReader::kRef, text + bytes);
                               }));
    if (const os::UniqueFd packed = layer_.packed_refs()) {
      TRY(tell(ToReader::kPacked, {}, {packed.get()}));
    }
    TRY_ASSIGN(const auto packs, layer_.packs(kMaxPacks));
    for (const auto& files : packs) {
      TRY(tell(ToReader::kPack, {}, {files.index.get(), files.pack.get()}));
    }
    return tell(ToReader::kGo);
  }

  Result<os::Packet> receive() const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    const auto wait = std::min<std::chrono::milliseconds>(left, kSilence);
    pollfd waiting{socket_, POLLIN, 0};
    int ready = -1;
    do {
      ready = ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(wait.count(), 0)));
    } while (ready < 0 && errno == EINTR);
    if (ready == 0)
      return Error("it takes too long: the history that the sandbox made is too much");
    TRY_ASSIGN(os::Packet packet, os::receive_packet(socket_));
    if (packet.end_of_stream || packet.bytes.empty()) {
      return Error("it ended: what the sandbox made of its git directory is too much, or hostile");
    }
    return packet;
  }

  static const Error& impossible() {
    static const Error kError("it said something impossible");
    return kError;
  }

  Status listen() {
    while (true) {
      TRY_ASSIGN(const os::Packet packet, receive());
      const std::string_view rest = std::string_view(packet.bytes).substr(1);
      switch (static_cast<FromReader>(packet.bytes[0])) {
        case FromReader::kHeadId:
          commits_.head_tip = reader::id_from_raw(rest);
          break;
        case FromReader::kHeadBranch:
          if (!reader::is_branch_name(rest)) return impossible();
          commits_.head_branch = rest;
          break;
        case FromReader::kBranch:
          TRY(take_branch(rest));
          break;
        case FromReader::kRefused:
          TRY(take_refusal(rest));
          break;
        case FromReader::kAsk:
          TRY(answer(rest));
          break;
        case FromReader::kWant:
          TRY(hand_loose(rest));
          break;
        case FromReader::kObject:
          TRY(take_object(rest));
          break;
        case FromReader::kComplete:
          break;  // found here, see complete()
        case FromReader::kEnd:
          return {};
        case FromReader::kFailed:
          return Error(std::string(rest.substr(0, kMaxReason)));
        default:
          return impossible();
      }
    }
  }

  Status take_branch(std::string_view rest) {
    if (rest.size() <= ObjectId::kSize) return impossible();
    const std::string name(rest.substr(ObjectId::kSize));
    if (!reader::is_branch_name(name) && name != "HEAD") return impossible();
    commits_.branches[name].tip = *reader::id_from_raw(rest.substr(0, ObjectId::kSize));
    return {};
  }

  Status take_refusal(std::string_view rest) {
    const std::size_t end = rest.find('\0');
    if (end == std::string_view::npos || commits_.refused.size() > 100'000) return impossible();
    const std::string name(rest.substr(0, end));
    const std::string reason(rest.substr(end + 1, kMaxReason));
    const auto found = commits_.branches.find(name);
    (found == commits_.branches.end() ? commits_.refused[name] : found->second.refused) = reason;
    return {};
  }

  Status answer(std::string_view raw) {
    const auto ids = reader::ids_from_raw(raw);
    if (ids.empty() || ids.size() > reader::kMaxBatch) return impossible();
    std::string bytes;
    for (const ObjectId& id : ids) bytes += home_.has(id) ? '\0' : '\1';
    return tell(ToReader::kAnswer, bytes);
  }

  Status hand_loose(std::string_view raw) {
    const auto id = reader::id_from_raw(raw);
    if (!id) return impossible();
    const os::UniqueFd fd = layer_.loose_object(*id);
    return fd ? tell(ToReader::kLoose, {}, {fd.get()}) : tell(ToReader::kNone);
  }

  Status take_object(std::string_view head) {
    constexpr std::size_t kHead = 1 + ObjectId::kSize + 8;
    if (head.size() != kHead || head[0] < 1 || head[0] > 3) return impossible();
    const auto type = static_cast<ObjectType>(head[0]);
    const ObjectId id = *reader::id_from_raw(head.substr(1, ObjectId::kSize));
    std::uint64_t size = 0;
    for (unsigned i = 0; i < 8; ++i) {
      size |= static_cast<std::uint64_t>(static_cast<unsigned char>(head[kHead - 8 + i]))
              << (8 * i);
    }
    bytes_ += size;
    if (size > limits_.object_bytes || bytes_ > limits_.all_bytes ||
        commits_.received.objects.size() >= limits_.objects || home_.has(id) ||
        commits_.received.holds(id)) {
      return impossible();
    }
    std::string content;
    while (content.size() < size) {
      TRY_ASSIGN(const os::Packet packet, receive());
      const std::string_view piece = std::string_view(packet.bytes).substr(1);
      if (packet.bytes[0] != char(FromReader::kChunk) || piece.empty() ||
          piece.size() > size - content.size()) {
        return impossible();
      }
      content += piece;
    }
    return keep(type, id, std::move(content));
  }

  Status keep(ObjectType type, const ObjectId& id, std::string content) {
    TRY_ASSIGN(const ObjectId found, HomeRepository::safe_id_of(type, content));
    if (found != id) return impossible();
    if (type == ObjectType::kCommit && !reader::check_commit(content).ok()) return impossible();
    if (type == ObjectType::kTree && !reader::check_tree(content).ok()) return impossible();
    TRY(take_(type, id, content));
    Received::Object object;
    object.type = type;
    if (type != ObjectType::kBlob || content.size() <= kMaxLink) {
      object.kept = true;
      kept_ += content.size();
      if (kept_ > kMaxKeptBytes) return Error("more history than is taken home at once");
      object.content = std::move(content);
    }
    commits_.received.objects.emplace(id, std::move(object));
    return {};
  }

  // Whether all that these objects lead to is here or was received; each is looked at once.
  void complete() {
    std::unordered_set<ObjectId, reader::ObjectIdHash> done;
    for (auto& [name, branch] : commits_.branches) {
      if (!branch.refused.empty()) continue;
      if (const Status whole = is_complete(branch.tip, done); !whole.ok()) {
        branch.refused = whole.error().message();
      }
      if (!branch.refused.empty()) done.clear();
    }
    for (auto& [name, branch] : commits_.branches) {
      if (!branch.refused.empty() && layer_.is_shallow()) {
        branch.refused += "; the history inside is shallow";
      }
    }
  }

  using Reference = std::pair<ObjectId, ObjectType>;

  Status is_complete(const ObjectId& tip,
                     std::unordered_set<ObjectId, reader::ObjectIdHash>& done) const {
    std::vector<Reference> pending{{tip, ObjectType::kCommit}};
    while (!pending.empty()) {
      const auto [id, type] = pending.back();
      pending.pop_back();
      if (!done.insert(id).second) continue;
      const auto found = commits_.received.objects.find(id);
      if (found == commits_.received.objects.end()) {
        if (!home_.has(id)) return Error(reader::to_hex(id) + " is missing");
        continue;
      }
      if (found->second.type != type) return Error(reader::to_hex(id) + " is of another kind");
      TRY(add_references(found->second, pending));
    }
    return {};
  }

  Status add_references(const Received::Object& object, std::vector<Reference>& pending) const {
    if (object.type == ObjectType::kCommit) {
      TRY_ASSIGN(const auto links, reader::check_commit(object.content));
      pending.emplace_back(links.tree, ObjectType::kTree);
      for (const ObjectId& parent : links.parents)
        pending.emplace_back(parent, ObjectType::kCommit);
    } else if (object.type == ObjectType::kTree) {
      TRY_ASSIGN(const auto entries, reader::check_tree(object.content));
      for (const auto& entry : entries) {
        if (entry.kind == reader::EntryKind::kSubmodule) {
          if (submodules_.contains(entry.id)) continue;
          return Error("\"" + std::string(entry.name) +
                       "\" is a submodule at a commit that is none of yours");
        }
        pending.emplace_back(entry.id, entry.kind == reader::EntryKind::kTree ? ObjectType::kTree
                                                                              : ObjectType::kBlob);
      }
    }
    return {};
  }

  const GitLayer& layer_;
  const HomeRepository& home_;
  const TakeObject& take_;
  reader::WalkLimits limits_;
  int socket_ = -1;
  Clock::time_point deadline_ = Clock::now() + kPatience;
  std::uint64_t bytes_ = 0;
  std::size_t kept_ = 0;
  std::set<ObjectId> submodules_;  // of the user's index
  SandboxCommits commits_;
};

}  // namespace

const std::string* Received::content(const reader::ObjectId& id) const {
  const auto found = objects.find(id);
  if (found == objects.end() || !found->second.kept) return nullptr;
  return &found->second.content;
}

Result<SandboxCommits> read_commits(const std::filesystem::path& reader, const GitLayer& layer,
                                    const HomeRepository& home, const TakeObject& take) {
  return Session(layer, home, take).run(reader);
}

}  // namespace cofferdam::orchestrator::changes
