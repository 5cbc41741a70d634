// Connections: what is connected to servers now. Each upstream Stream owns its Connection, which
// counts its bytes, tells who asks about it, and can be ended from outside: by a policy that no
// longer allows it, by a budget, by the control socket. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>

#include "common/policy/egress_policy.h"
#include "egressproxy/budgets.h"
#include "egressproxy/net.h"

namespace cofferdam::egressproxy {

class Connections;
class Stream;

// What a connection is for, as it was decided.
struct ConnectionInfo {
  policy::Endpoint endpoint;
  std::optional<policy::Protocol> protocol;  // none: not known yet
  std::optional<policy::IpAddress> address;  // none: the upstream proxy resolved the name
  policy::Decision decision;                 // allows
};

class Connection final {
 public:
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::uint64_t id() const { return id_; }
  const ConnectionInfo& info() const { return info_; }
  Clock::time_point since() const { return since_; }
  Meter& meter() { return meter_; }
  const Meter& meter() const { return meter_; }

  // The first bytes have told it (Pipeline::settle).
  void set_protocol(policy::Protocol protocol) { info_.protocol = protocol; }
  // Its other side. A tunnel's ends with it; an HTTP exchange's is left for the answer. It must
  // live as long as this, or be taken back with null.
  enum class Bond : std::uint8_t { kTunnel, kExchange };
  void set_downstream(Stream* downstream, Bond bond) {
    downstream_ = downstream;
    bond_ = bond;
  }

  // Another rule allows it now: its bytes and its place are that one's from here on.
  void charge_to(Account& rule, policy::Decision decision);
  // Resets the connection, both sides of a tunnel; what was waiting on them fails. `why` is what
  // the event will say.
  void end(policy::Decision why);
  // The budget is spent: like end(), with that reason.
  void end_spent();
  // Resets what end() resets, and gives no reason: the service ends.
  void drop();
  // Set when it was ended from here.
  const std::optional<policy::Decision>& ended() const { return ended_; }

 private:
  friend class Connections;
  friend class Stream;  // tells where it is
  Connection(Connections& all, std::uint64_t id, ConnectionInfo info, Slot slot);

  Connections& all_;
  std::list<Connection*>::iterator place_;
  std::uint64_t id_;
  ConnectionInfo info_;
  Slot slot_;
  Meter meter_;
  Clock::time_point since_ = Clock::now();
  Stream* upstream_ = nullptr;
  Stream* downstream_ = nullptr;
  Bond bond_ = Bond::kTunnel;
  std::optional<policy::Decision> ended_;
};

class Connections final {
 public:
  // In the list until it is destroyed.
  std::unique_ptr<Connection> open(ConnectionInfo info, Slot slot);

  std::size_t size() const { return list_.size(); }
  // Oldest first. `visit` may end connections, but destroys none.
  void for_each(const std::function<void(Connection&)>& visit);
  // False when there is none with this id (any more).
  bool end(std::uint64_t id, policy::Decision why);

 private:
  friend class Connection;
  std::list<Connection*> list_;
  std::uint64_t next_id_ = 1;
};

// What `policy` says about a connection that is there.
policy::Decision decide_again(const ConnectionInfo& info, const policy::EgressPolicy& policy,
                              const std::set<policy::IpAddress>& own);

// Asks of each connection whether `policy` still allows it, and ends those that it does not with
// policy_revoked; the others are charged to the rule that allows them now. Gives how many it ended.
std::size_t enforce_policy(Connections& connections, const policy::EgressPolicy& policy,
                           Budgets& budgets, const std::set<policy::IpAddress>& own);

}  // namespace cofferdam::egressproxy
