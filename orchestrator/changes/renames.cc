#include "orchestrator/changes/renames.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/forbidden_names.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;

constexpr std::size_t kMaxCandidates = 300;
constexpr std::uint64_t kMaxFileBytes = 1U << 20U;
constexpr std::uint64_t kMaxBytes = 64U << 20U;
constexpr std::size_t kMaxChunk = 64;

// Chunks of a content (lines, cut at 64 bytes) by hash, with how many bytes each has in all.
using Chunks = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

Chunks chunks_of(std::string_view bytes) {
  Chunks all;
  while (!bytes.empty()) {
    std::size_t length = bytes.substr(0, kMaxChunk).find('\n');
    length = length == std::string_view::npos ? std::min(kMaxChunk, bytes.size()) : length + 1;
    std::uint32_t hash = 2166136261U;  // FNV-1a
    for (const char c : bytes.substr(0, length)) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    }
    all.emplace_back(hash, length);
    bytes.remove_prefix(length);
  }
  std::sort(all.begin(), all.end());
  Chunks sums;
  for (const auto& [hash, length] : all) {
    if (!sums.empty() && sums.back().first == hash) {
      sums.back().second += length;
    } else {
      sums.emplace_back(hash, length);
    }
  }
  return sums;
}

std::uint64_t total(const Chunks& chunks) {
  std::uint64_t sum = 0;
  for (const auto& chunk : chunks) sum += chunk.second;
  return sum;
}

std::uint64_t common(const Chunks& a, const Chunks& b) {
  std::uint64_t sum = 0;
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() && j != b.end()) {
    if (i->first == j->first) {
      sum += std::min(i->second, j->second);
      ++i;
      ++j;
    } else if (i->first < j->first) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

unsigned alike(const Chunks& a, const Chunks& b) {
  const std::uint64_t larger = std::max(total(a), total(b));
  if (larger == 0) return 0;
  return static_cast<unsigned>(std::min<std::uint64_t>(common(a, b) * 100 / larger, 99));
}

class Finder final {
 public:
  Finder(const LayerView& view, ChangeSet& set) : view_(view), set_(set) {
    for (std::size_t i = 0; i < set.changes.size(); ++i) {
      const Change& change = set.changes[i];
      if (change.kind == ChangeKind::kDeleted && may_move(change, change.base)) from_.push_back(i);
      if (change.kind == ChangeKind::kAdded && may_move(change, change.theirs)) to_.push_back(i);
    }
  }

  Status find() {
    if (from_.empty() || to_.empty()) return {};
    exact();
    if (from_.size() <= kMaxCandidates && to_.size() <= kMaxCandidates) TRY(inexact());
    return {};
  }

 private:
  static bool may_move(const Change& change, const ObjectState& state) {
    // git takes no link of this name on either side: the section would spoil the whole patch.
    const bool nameless =
        state.kind == Kind::kSymlink && is_dot_gitmodules(os::leaf_of(change.path));
    return (state.kind == Kind::kFile || state.kind == Kind::kSymlink) && !nameless &&
           state.size > 0 && state.sha256.has_value();
  }

  bool same_name(std::size_t from, std::size_t to) const {
    return os::leaf_of(set_.changes[from].path) == os::leaf_of(set_.changes[to].path);
  }

  void pair_up(std::size_t from, std::size_t to, unsigned percent) {
    set_.renames[to] = {from, percent};
    std::erase(from_, from);
    std::erase(to_, to);
  }

  void exact() {
    std::multimap<std::pair<Kind, Sha256Digest>, std::size_t> known;
    for (const std::size_t from : from_) {
      const ObjectState& base = set_.changes[from].base;
      known.emplace(std::pair(base.kind, *base.sha256), from);
    }
    std::set<std::size_t> gone_from;
    std::set<std::size_t> gone_to;
    for (const std::size_t to : to_) {
      const ObjectState& theirs = set_.changes[to].theirs;
      const auto [begin, end] = known.equal_range(std::pair(theirs.kind, *theirs.sha256));
      if (begin == end) continue;
      const auto named =
          std::find_if(begin, end, [&](const auto& entry) { return same_name(entry.second, to); });
      const auto chosen = named == end ? begin : named;
      set_.renames[to] = {chosen->second, 100};
      gone_from.insert(chosen->second);
      gone_to.insert(to);
      known.erase(chosen);
    }
    std::erase_if(from_, [&](std::size_t i) { return gone_from.contains(i); });
    std::erase_if(to_, [&](std::size_t i) { return gone_to.contains(i); });
  }

  // Nothing where it is too large, or its content is nowhere.
  std::optional<Chunks> read(const Change& change, const ObjectState& state, bool base) {
    if (state.kind != Kind::kFile || state.size > kMaxFileBytes || read_ > kMaxBytes) return {};
    std::string bytes;
    const Sink sink = [&](std::string_view piece) -> Status {
      if (bytes.size() + piece.size() > kMaxFileBytes) return Error("it grows");
      bytes += piece;
      return {};
    };
    const Status done =
        base ? view_.read_base(change.path, state, sink) : view_.read_theirs(change.path, sink);
    if (!done.ok()) return {};
    read_ += bytes.size();
    return chunks_of(bytes);
  }

  Status inexact() {
    struct Content {
      std::size_t index;
      Chunks chunks;
    };
    std::vector<Content> before;
    std::vector<Content> after;
    for (const std::size_t i : from_) {
      auto chunks = read(set_.changes[i], set_.changes[i].base, true);
      if (chunks.has_value()) before.push_back({i, std::move(*chunks)});
    }
    for (const std::size_t i : to_) {
      auto chunks = read(set_.changes[i], set_.changes[i].theirs, false);
      if (chunks.has_value()) after.push_back({i, std::move(*chunks)});
    }
    std::vector<std::tuple<unsigned, bool, std::size_t, std::size_t>> scores;
    for (const Content& a : before) {
      for (const Content& b : after) {
        const std::uint64_t x = set_.changes[a.index].base.size;
        const std::uint64_t y = set_.changes[b.index].theirs.size;
        if (std::min(x, y) * 100 < std::max(x, y) * kMinSimilarity) continue;
        const unsigned percent = alike(a.chunks, b.chunks);
        if (percent < kMinSimilarity) continue;
        scores.emplace_back(percent, same_name(a.index, b.index), a.index, b.index);
      }
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    for (const auto& [percent, named, from, to] : scores) {
      const bool free = std::find(from_.begin(), from_.end(), from) != from_.end() &&
                        std::find(to_.begin(), to_.end(), to) != to_.end();
      if (free) pair_up(from, to, percent);
    }
    return {};
  }

  const LayerView& view_;
  ChangeSet& set_;
  std::vector<std::size_t> from_;
  std::vector<std::size_t> to_;
  std::uint64_t read_ = 0;
};

}  // namespace

unsigned similarity(std::string_view before, std::string_view after) {
  if (before == after) return before.empty() ? 0 : 100;
  return alike(chunks_of(before), chunks_of(after));
}

Status find_renames(const LayerView& view, ChangeSet& set) {
  set.renames.clear();
  return Finder(view, set).find();
}

}  // namespace cofferdam::orchestrator::changes
