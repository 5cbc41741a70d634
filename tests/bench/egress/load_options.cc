#include "tests/bench/egress/load_options.h"

#include <algorithm>
#include <cstdio>

#include "tests/bench/egress/event_loop.h"

namespace cofferdam::bench {
namespace {

std::string number16(std::size_t value) {
  return {static_cast<char>((value >> 8U) & 0xffU), static_cast<char>(value & 0xffU)};
}

std::string with_length16(const std::string& bytes) {
  return number16(bytes.size()) + bytes;
}

std::string extension(std::uint16_t type, const std::string& bytes) {
  return number16(type) + with_length16(bytes);
}

}  // namespace

LoadOptions::LoadOptions(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    if (equals == std::string::npos) die("'" + word + "' is not key=value");
    values_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

std::string LoadOptions::text(const std::string& key, const std::string& otherwise) const {
  const auto found = values_.find(key);
  return found == values_.end() ? otherwise : found->second;
}

std::string LoadOptions::required(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) die("missing " + key + "=");
  return found->second;
}

std::uint64_t LoadOptions::number(const std::string& key, std::uint64_t otherwise) const {
  const auto found = values_.find(key);
  return found == values_.end() ? otherwise : std::stoull(found->second);
}

std::chrono::milliseconds LoadOptions::duration() const {
  return std::chrono::milliseconds(number("ms", 1000));
}

void Latencies::add(std::chrono::nanoseconds time) {
  micros_.push_back(static_cast<std::uint32_t>(time.count() / 1000));
  sorted_ = false;
}

std::uint32_t Latencies::at(unsigned per_mille) {
  if (micros_.empty()) return 0;
  if (!sorted_) std::sort(micros_.begin(), micros_.end());
  sorted_ = true;
  return micros_[std::min(micros_.size() - 1, micros_.size() * per_mille / 1000)];
}

void Report::add(const std::string& key, double value) {
  char number[64];
  (void)std::snprintf(number, sizeof number, "%.3f", value);
  text_ += (text_.empty() ? "\"" : ", \"") + key + "\": " + number;
}

void Report::add(const std::string& key, std::uint64_t value) {
  text_ += (text_.empty() ? "\"" : ", \"") + key + "\": " + std::to_string(value);
}

void Report::print() const {
  std::printf("{%s}\n", text_.c_str());
  (void)std::fflush(stdout);
}

std::string client_hello(const std::string& server_name) {
  constexpr std::size_t kUsualSize = 512;  // of the handshake message, padded as browsers do
  const std::string name = std::string(1, '\0') + with_length16(server_name);
  std::string extensions = extension(0, with_length16(name));
  extensions += extension(10, with_length16(number16(0x001d)));                     // x25519
  extensions += extension(13, with_length16(number16(0x0403) + number16(0x0804)));  // signatures
  extensions += extension(43, std::string("\x02\x03\x04", 3));                      // TLS 1.3
  const std::string share = number16(0x001d) + with_length16(std::string(32, '\x42'));
  extensions += extension(51, with_length16(share));
  std::string fixed = number16(0x0303) + std::string(32, '\x5a');
  fixed += std::string(1, '\x20') + std::string(32, '\x33');
  fixed += with_length16(number16(0x1301) + number16(0x1302)) + std::string("\x01\x00", 2);
  const std::size_t size = fixed.size() + 2 + extensions.size() + 4;
  if (size + 4 < kUsualSize) extensions += extension(21, std::string(kUsualSize - size - 4, '\0'));
  const std::string body = fixed + with_length16(extensions);
  const std::string message = std::string("\x01\x00", 2) + with_length16(body);
  return std::string("\x16\x03\x01", 3) + with_length16(message);
}

}  // namespace cofferdam::bench
