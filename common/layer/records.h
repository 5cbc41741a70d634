// What is recorded of lower objects: the version that the sandbox started from, and what it read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/sha256.h"

namespace cofferdam::layer {

enum class Kind : std::uint8_t {
  kAbsent = 0,
  kFile = 1,
  kDirectory = 2,
  kSymlink = 3,
  kOther = 4,  // FIFO, socket, device
};

// One version of one lower object, as stat(2) told it.
struct Version {
  Kind kind = Kind::kAbsent;
  std::uint32_t mode = 0;  // permission bits, 07777
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // since the epoch
  std::int64_t ctime_ns = 0;
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  bool operator==(const Version&) const = default;
};

// How much is known of the base of a path.
enum class BaseState : std::uint8_t {
  kKnown = 0,  // `version` is what the sandbox started from
  kUnknown =
      1,  // it changed between the start and the first touch, or while it was copied: conflict
};

// The base of one lower path: recorded before the first act that changes it returns.
struct BaseRecord {
  std::string path;
  BaseState state = BaseState::kUnknown;
  Version version;
  std::optional<Sha256Digest> sha256;  // of a file's content or a link's text, where it was read
  bool stored = false;                 // the content is kept beside the record
  bool racy = false;  // ctime within two ticks of being recorded: equal only by hash
};

struct ReadRecord {
  std::string path;
  Version version;  // the first version read
};

}  // namespace cofferdam::layer
