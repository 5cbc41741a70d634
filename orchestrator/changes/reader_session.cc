#include "orchestrator/changes/reader_session.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>

#include "common/os/fd_passing.h"
#include "common/os/pipes.h"
#include "common/os/process.h"
#include "orchestrator/changes/completeness.h"
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

class Session final {
 public:
  Session(const GitLayer& layer, const HomeRepository& home, const TakeObject& take,
          ReaderPatience patience)
      : layer_(layer), home_(home), take_(take), patience_(patience) {}

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
  // A reader that takes nothing any more holds nobody up either.
  Status tell(ToReader kind, std::string_view rest = {}, const std::vector<int>& fds = {}) const {
    TRY(wait_for(POLLOUT));
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

  Status wait_for(short what) const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    const auto wait = std::min(left, patience_.silence);
    pollfd waiting{socket_, what, 0};
    int ready = 0;
    // Also where it has always something to say.
    if (wait.count() > 0) {
      do {
        ready = ::poll(&waiting, 1, static_cast<int>(wait.count()));
      } while (ready < 0 && errno == EINTR);
    }
    if (ready == 0) {
      return Error("it takes too long: the history that the sandbox made is too much");
    }
    return {};
  }

  Result<os::Packet> receive() const {
    TRY(wait_for(POLLIN));
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
    if (commits_.branches.size() == reader::kMaxBranches && !commits_.branches.contains(name)) {
      return impossible();
    }
    commits_.branches[name].tip = *reader::id_from_raw(rest.substr(0, ObjectId::kSize));
    return {};
  }

  Status take_refusal(std::string_view rest) {
    const std::size_t end = rest.find('\0');
    if (end == std::string_view::npos || end > reader::kMaxRefusedName ||
        commits_.refused.size() > reader::kMaxBranches) {
      return impossible();
    }
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

  // Whether all that a branch leads to is here or was received.
  void complete() {
    Completeness whole(
        commits_.received, [&](const ObjectId& id) { return home_.has(id); }, submodules_);
    for (auto& [name, branch] : commits_.branches) {
      if (branch.refused.empty()) {
        if (const Status found = whole.check(branch.tip); !found.ok()) {
          branch.refused = found.error().message();
        }
      }
      if (!branch.refused.empty() && layer_.is_shallow()) {
        branch.refused += "; the history inside is shallow";
      }
    }
  }

  const GitLayer& layer_;
  const HomeRepository& home_;
  const TakeObject& take_;
  reader::WalkLimits limits_;
  int socket_ = -1;
  ReaderPatience patience_;
  Clock::time_point deadline_ = Clock::now() + patience_.whole;
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
                                    const HomeRepository& home, const TakeObject& take,
                                    ReaderPatience patience) {
  return Session(layer, home, take, patience).run(reader);
}

}  // namespace cofferdam::orchestrator::changes
