// What a load is told on the command line (key=value words) and what it prints.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cofferdam::bench {

class LoadOptions final {
 public:
  // Words after the kind of the load; one without '=' ends the program.
  LoadOptions(int argc, char** argv);

  std::string text(const std::string& key, const std::string& otherwise) const;
  std::string required(const std::string& key) const;
  std::uint64_t number(const std::string& key, std::uint64_t otherwise) const;
  std::chrono::milliseconds duration() const;  // `ms`

 private:
  std::map<std::string, std::string> values_;
};

// Times of finished exchanges, in microseconds.
class Latencies final {
 public:
  void add(std::chrono::nanoseconds time);
  std::size_t count() const { return micros_.size(); }
  // `per_mille` 500 is the median; 0 when there is nothing.
  std::uint32_t at(unsigned per_mille);

 private:
  std::vector<std::uint32_t> micros_;
  bool sorted_ = false;
};

// One JSON object on standard output.
class Report final {
 public:
  void add(const std::string& key, double value);
  void add(const std::string& key, std::uint64_t value);
  void print() const;

 private:
  std::string text_;
};

// A TLS 1.3 ClientHello with this server name, as a browser sends it: one record of about 517
// bytes.
std::string client_hello(const std::string& server_name);

}  // namespace cofferdam::bench
