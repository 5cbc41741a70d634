#include "egressproxy/connections.h"

#include <array>

#include "egressproxy/authorize.h"
#include "egressproxy/stream.h"
#include "egressproxy/upstream_proxy.h"

namespace cofferdam::egressproxy {

using policy::Decision;
using policy::Reason;
using policy::Verdict;

Decision decide_again(const ConnectionInfo& info, const policy::EgressPolicy& policy,
                      const std::set<policy::IpAddress>& own) {
  if (!info.address) return authorize_unresolved(policy, info.endpoint, info.protocol).decision;
  const std::array<policy::IpAddress, 1> address = {*info.address};
  return authorize(policy, info.endpoint, info.protocol, address, own).decision;
}

Connection::Connection(Connections& all, std::uint64_t id, ConnectionInfo info, Slot slot)
    : all_(all),
      place_(all.list_.insert(all.list_.end(), this)),
      id_(id),
      info_(std::move(info)),
      slot_(std::move(slot)),
      meter_(slot_.sandbox(), slot_.rule()) {}

Connection::~Connection() {
  all_.list_.erase(place_);
}

void Connection::charge_to(Account& rule, Decision decision) {
  info_.decision = std::move(decision);
  slot_.move_to(rule);
  meter_.move_to(rule);
}

void Connection::end(Decision why) {
  if (!ended_) ended_ = std::move(why);
  drop();
}

void Connection::drop() {
  if (upstream_ != nullptr) upstream_->abort();
  if (downstream_ != nullptr && bond_ == Bond::kTunnel) downstream_->abort();
}

void Connection::end_spent() {
  end({Verdict::kDeny, Reason::kQuotaExceeded, info_.decision.rule});
}

std::unique_ptr<Connection> Connections::open(ConnectionInfo info, Slot slot) {
  return std::unique_ptr<Connection>(
      new Connection(*this, next_id_++, std::move(info), std::move(slot)));
}

void Connections::for_each(const std::function<void(Connection&)>& visit) {
  for (Connection* connection : list_) visit(*connection);
}

bool Connections::end(std::uint64_t id, Decision why) {
  for (Connection* connection : list_) {
    if (connection->id() != id) continue;
    connection->end(std::move(why));
    return true;
  }
  return false;
}

std::size_t enforce_policy(Connections& connections, const policy::EgressPolicy& policy,
                           Budgets& budgets, const std::set<policy::IpAddress>& own) {
  std::size_t count = 0;
  connections.for_each([&](Connection& connection) {
    const ConnectionInfo& info = connection.info();
    const Decision now = decide_again(info, policy, own);
    if (now.allowed()) {
      connection.charge_to(budgets.account(now.rule), now);
      return;
    }
    connection.end({Verdict::kDeny, Reason::kPolicyRevoked, info.decision.rule});
    ++count;
  });
  return count;
}

}  // namespace cofferdam::egressproxy
