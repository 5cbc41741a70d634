// EventLine: the fields of one event as JSON text, written in the order in which they are added and
// without a tree of values: what a busy service writes thousands of times a second. Reused: clear()
// keeps the memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cofferdam::log {

// `text` as a JSON string with its quotes; what is not valid UTF-8 is replaced.
void append_json_string(std::string& to, std::string_view text);

class EventLine final {
 public:
  // Numbers that are added up where equal events are folded; more are only written.
  static constexpr std::size_t kMaxSums = 2;
  struct Sum {
    std::string_view key;  // a literal
    std::uint64_t value = 0;
  };

  void clear();

  // Keys are literals that need no escape. These fields make events equal or different.
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, std::uint64_t value);
  void add_flag(std::string_view key, bool value);
  // `json` is a whole JSON value.
  void add_json(std::string_view key, std::string_view json);

  // Numbers in which equal events differ: added up, or only written.
  void add_sum(std::string_view key, std::uint64_t value);
  void add_measure(std::string_view key, std::uint64_t value);

  // "\"a\":1,\"b\":2", without braces.
  std::string_view stable() const { return stable_; }
  std::string_view changing() const { return changing_; }
  const std::array<Sum, kMaxSums>& sums() const { return sums_; }

 private:
  std::string stable_;
  std::string changing_;
  std::array<Sum, kMaxSums> sums_{};
};

}  // namespace cofferdam::log
