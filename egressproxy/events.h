// What egressproxy writes into the sandbox's event file (docs/events.md), and its counters.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/log/event_log.h"
#include "common/policy/egress_policy.h"
#include "egressproxy/net.h"
#include "egressproxy/stream.h"

namespace cofferdam::egressproxy {

// One decision about a connection or, for plain HTTP, a request.
struct EgressRecord {
  policy::Decision decision;
  std::string host;        // canonical text: the name, or the address where there is no name
  std::uint16_t port = 0;  // 0 when none was understood
  std::optional<policy::IpAddress> address;
  std::string protocol;  // tls, http, tcp; empty when none was understood
  std::string via;       // transparent, connect, http, socks
  std::string method;    // of http
  std::string path;      // of http, without the query
  bool encrypted_hello =
      false;  // of tls: the ClientHello has an encrypted part (RFC 9849), real or greased
  std::vector<policy::DroppedAddress> dropped;
  std::uint64_t bytes_up = 0;
  std::uint64_t bytes_down = 0;
  Clock::time_point since = Clock::now();
};

// Once a tunnel is over: what it carried in all, and why it was ended where that was done from here
// (a budget, a policy, the control socket).
void conclude(EgressRecord& record, const Stream& upstream);
// The second half of it, for one of several requests on a connection.
void conclude_decision(EgressRecord& record, const Stream& upstream);

struct DnsRecord {
  policy::Decision decision;
  std::string host;
  std::string type;
  std::vector<policy::IpAddress> addresses;
  std::vector<policy::DroppedAddress> dropped;
  std::vector<std::string> aliases;  // of the chain that the server followed
};

struct Counters {
  std::uint64_t allowed = 0;
  std::uint64_t denied = 0;
  std::uint64_t failed = 0;
  std::uint64_t dns_questions = 0;
};

class Recorder final {
 public:
  // No log (null): counters only, for a service without a sandbox.
  explicit Recorder(log::EventLog* events) : events_(events) {}

  // From now on the tunnels that end and the names that are answered in one turn of the loop are
  // written at the turn's end, in one call. What is refused is written before it is told.
  void write_per_turn(asio::io_context& context);

  void record(const EgressRecord& record);
  void record(const DnsRecord& record);
  // An event of the service itself.
  void note(std::string_view event, const Json& fields);
  // False while events cannot be written: nothing new is allowed then.
  bool can_record() { return events_ == nullptr || events_->healthy() || events_->try_recover(); }
  void set_manifest(const std::string& digest) {
    if (events_ != nullptr) events_->set_manifest(digest);
  }
  const Counters& counters() const { return counters_; }
  std::uint64_t written() const { return events_ == nullptr ? 0 : events_->written(); }
  std::uint64_t lost() const { return events_ == nullptr ? 0 : events_->lost(); }
  // Each verdict, reason and protocol that was recorded, with its number.
  void for_each_count(
      const std::function<void(policy::Verdict verdict, policy::Reason reason,
                               std::string_view protocol, std::uint64_t count)>& visit) const;

 private:
  static constexpr std::array<std::string_view, 5> kProtocols = {"", "tls", "http", "tcp", "dns"};
  static constexpr std::size_t kVerdicts = 3;
  using OfReason = std::array<std::array<std::uint64_t, kProtocols.size()>, kVerdicts>;
  void count(const policy::Decision& decision, std::string_view protocol);
  void add_decision(const policy::Decision& decision);
  void add_dropped(const std::vector<policy::DroppedAddress>& dropped);
  void add_hint(const policy::Decision& decision, std::string_view host, std::uint16_t port,
                std::string_view protocol);
  // `at_once`: before whoever it is about is answered.
  void write(std::string_view event, bool at_once);
  void write_later();
  void complain(const Status& status);

  log::EventLog* events_;
  log::EventLine line_;
  asio::io_context* context_ = nullptr;
  bool flush_due_ = false;
  Counters counters_;
  std::vector<OfReason> counts_;  // by reason; as long as the last one that was counted
  bool complained_ = false;       // since the last event that could be written
};

}  // namespace cofferdam::egressproxy
