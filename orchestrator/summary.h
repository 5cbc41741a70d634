// Summary: what a run was refused and allowed, made from its events and nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/json_text.h"

namespace cofferdam::orchestrator {

class Summary final {
 public:
  void add(const Json& event);

  struct Denied {
    std::string what;    // "connect evil.example:443", "open /home/u/p/.env"
    std::string reason;  // reason code
    std::string rule;
    std::string hint;  // the command that would allow it, or empty
    std::uint64_t count = 0;
  };
  // In the order of their first event.
  const std::vector<Denied>& denied() const { return denied_; }
  const std::vector<Denied>& errors() const { return errors_; }

  struct Host {
    std::uint64_t connections = 0;
    std::uint64_t bytes_up = 0;
    std::uint64_t bytes_down = 0;
  };
  const std::map<std::string, Host>& hosts() const { return hosts_; }  // host:port
  const std::vector<std::string>& limits() const { return limits_; }

  Json to_json() const;
  // Lines for people, not escaped yet.
  std::vector<std::string> lines() const;

 private:
  void add_decision(const Json& event, std::uint64_t count);

  std::vector<Denied> denied_;
  std::vector<Denied> errors_;
  std::map<std::string, std::size_t> denied_index_;
  std::map<std::string, std::size_t> error_index_;
  std::map<std::string, Host> hosts_;
  std::vector<std::string> limits_;
};

// What a decision was about: "resolve HOST", "connect HOST:PORT", "open PATH", "call SYSCALL".
std::string describe_act(const Json& event);
// The command that would allow it; the event's own hint first.
std::string hint_for(const Json& event);

// "1.5 MiB"
std::string bytes_text(std::uint64_t bytes);

}  // namespace cofferdam::orchestrator
