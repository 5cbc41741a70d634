// What cofferdam and cofferdam-reader say to each other: packets over one AF_UNIX SOCK_SEQPACKET
// socket, the first byte tells which. Neither side believes the other's sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cofferdam::orchestrator::reader {

inline constexpr int kReaderSocket = 3;  // its number in the reader
inline constexpr std::size_t kMaxBatch = 1024;
inline constexpr std::size_t kChunkBytes = 64U << 10U;
inline constexpr std::size_t kMaxRefFile = 1024;      // bytes of a loose reference or HEAD
inline constexpr std::size_t kMaxBranches = 10'000;   // refused names apart, as many again
inline constexpr std::size_t kMaxRefusedName = 4096;  // bytes that are told of such a name

// To the reader: first what there is to read, then answers.
enum class ToReader : char {
  kHead = 'H',    // the file's bytes
  kRef = 'R',     // name below refs/heads/, NUL, the file's bytes
  kPacked = 'P',  // packed-refs, as a descriptor
  kPack = 'I',    // index and pack, as descriptors
  kGo = 'G',
  kAnswer = 'a',  // a byte for each id: 1 where it is missing at home
  kLoose = 'l',   // the object's file, as a descriptor
  kNone = 'n',    // there is no such file
};

// From the reader: first what the references say, then the walk.
enum class FromReader : char {
  kHeadId = 'D',      // 20 bytes
  kHeadBranch = 'S',  // name
  kBranch = 'b',      // 20 bytes, name; all that are known, before the first question
  kRefused = 'x',     // name, NUL, reason: no such branch comes home
  kAsk = 'q',         // ids: which of them are missing at home
  kWant = 'w',        // one id: its loose file
  kObject = 'o',      // type (1 byte), 20 bytes, size (8 bytes, little endian); chunks follow
  kChunk = 'c',
  kComplete = 'v',  // name: all that this branch leads to was given, or is at home
  kEnd = 'e',
  kFailed = 'f',  // text
};

template <typename Kind>
std::string packet(Kind kind, std::string_view rest = {}) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += rest;
  return bytes;
}

}  // namespace cofferdam::orchestrator::reader
