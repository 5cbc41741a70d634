#include "egressproxy/dns_server.h"

#include <array>

namespace cofferdam::egressproxy {
namespace {

using dns::Query;
using dns::Rcode;
using dns::Reply;
using dns::Type;
using policy::Reason;
using policy::Verdict;

constexpr std::uint16_t kClassInternet = 1;
constexpr std::uint16_t kTypeIxfr = 251;
constexpr std::uint16_t kTypeAxfr = 252;
// RFC 8914.
constexpr std::uint16_t kEdeOther = 0;
constexpr std::uint16_t kEdeBlocked = 15;
constexpr std::uint16_t kEdeNoReachable = 22;
constexpr std::uint16_t kEdeNetworkError = 23;
constexpr std::uint32_t kPtrTtl = 60;        // seconds
constexpr std::size_t kMaxUdpAtOnce = 512;   // questions that wait for a server
constexpr std::size_t kMaxUdpPacket = 4096;  // a question past it is malformed
constexpr int kReceiveBuffer = 1 << 20;      // bytes
constexpr int kUdpBatch = 64;                // packets between two turns of the event loop
constexpr std::size_t kMaxTcpAnswer = 65535;

Reply plain(Rcode rcode) {
  Reply reply;
  reply.rcode = rcode;
  return reply;
}

Reply explained(Rcode rcode, std::uint16_t extended_error, Reason reason) {
  Reply reply = plain(rcode);
  reply.extended_error = extended_error;
  reply.extended_text = policy::to_text(reason);
  return reply;
}

// "No" with its reason. A denied name does not exist; a name whose addresses are refused exists
// without any, because NXDOMAIN for one type makes some clients forget the other. What may be
// allowed a moment later is a failure, which no client keeps.
Reply negative(const Answered& answered) {
  const Reason reason = answered.decision.reason;
  if (policy::is_retryable(reason)) return explained(Rcode::kServFail, kEdeOther, reason);
  const Rcode rcode = answered.name_allowed ? Rcode::kNoError : Rcode::kNxDomain;
  Reply reply = explained(rcode, kEdeBlocked, reason);
  reply.soa = true;
  return reply;
}

Reply positive(const Answered& answered, Type type) {
  Reply reply = plain(answered.rcode);
  for (const auto& address : answered.addresses) {
    // An IPv4-mapped address of an AAAA answer is an IPv4 address here, and none of this type.
    if (address.is_v4() != (type == Type::kA)) continue;
    reply.answers.push_back({type, answered.ttl, dns::address_data(address)});
  }
  reply.soa = reply.answers.empty();
  return reply;
}

Reply reply_for(const Answered& answered, Type type) {
  switch (answered.decision.verdict) {
    case Verdict::kAllow:
      return positive(answered, type);
    case Verdict::kDeny:
      return negative(answered);
    case Verdict::kError:
      break;
  }
  const Reason reason = answered.decision.reason;
  const bool silent = reason == Reason::kResolveTimeout;
  return explained(Rcode::kServFail, silent ? kEdeNoReachable : kEdeNetworkError, reason);
}

}  // namespace

DnsQuestion::DnsQuestion(Pipeline& pipeline, std::string_view packet, bool udp)
    : pipeline_(pipeline), udp_(udp) {
  dns::ParsedQuery parsed = dns::parse_query(packet);
  if (parsed.drop) {
    answer_.emplace();
  } else if (parsed.error) {
    answer_ = dns::write_error(packet, *parsed.error);
  } else {
    query_ = std::move(parsed.query);
    if (const auto reply = reply_now()) answer_ = written(*reply);
  }
}

std::string DnsQuestion::written(const Reply& reply) const {
  return dns::write_reply(query_, reply, udp_ ? query_.payload_size : kMaxTcpAnswer);
}

void DnsQuestion::record(const Answered& answered) {
  DnsRecord record;
  record.decision = answered.decision;
  record.host = query_.name;
  record.type = dns::type_text(query_.type);
  record.addresses = answered.addresses;
  record.dropped = answered.dropped;
  record.aliases = answered.aliases;
  pipeline_.recorder().record(record);
}

// Names of a pinned address; no other reverse name is known here.
Reply DnsQuestion::reverse() {
  Answered answered;
  std::vector<policy::HostName> names;
  if (const auto address = dns::reverse_address(query_.name)) {
    names = pipeline_.pins().names(*address);
  }
  Reply reply = negative(answered);
  if (!names.empty()) {
    answered.decision = {Verdict::kAllow, Reason::kAllowed, {}};
    reply = plain(Rcode::kNoError);
    for (const auto& name : names) {
      reply.answers.push_back({Type::kPtr, kPtrTtl, dns::name_data(name)});
    }
  }
  record(answered);
  return reply;
}

std::optional<Reply> DnsQuestion::reply_now() {
  if (query_.edns_version != 0) return plain(Rcode::kBadVers);
  if (query_.qclass != kClassInternet) return plain(Rcode::kRefused);
  if (query_.type == kTypeAxfr || query_.type == kTypeIxfr) return plain(Rcode::kRefused);
  if (!query_.name_is_host) return plain(Rcode::kFormErr);
  const auto type = static_cast<Type>(query_.type);
  if (type == Type::kPtr && query_.name.ends_with(".arpa")) return reverse();
  auto name = policy::HostName::parse(query_.name);
  if (!name) {
    Answered answered;
    answered.decision.reason = Reason::kNameInvalid;
    record(answered);
    return negative(answered);
  }
  name_ = std::move(*name);
  const auto answered = pipeline_.answer_now(*name_, type);
  if (!answered) return std::nullopt;
  record(*answered);
  return reply_for(*answered, type);
}

Async<std::string> DnsQuestion::later() {
  const auto type = static_cast<Type>(query_.type);
  const Answered answered = co_await pipeline_.answer(*name_, type);
  record(answered);
  co_return written(reply_for(answered, type));
}

std::string DnsQuestion::refuse_for_load() {
  Answered answered;
  answered.decision.reason = Reason::kTooManyConnections;
  record(answered);
  return written(negative(answered));
}

namespace {

// A datagram that cannot be sent at once is lost, as datagrams are.
void send(udp::socket& socket, const std::string& answer, const udp::endpoint& peer) {
  error_code ignored;
  if (!answer.empty()) socket.send_to(asio::buffer(answer), peer, 0, ignored);
}

Async<void> answer_later(udp::socket& socket, DnsQuestion question, udp::endpoint peer,
                         std::shared_ptr<std::size_t> waiting) {
  const std::string answer = co_await question.later();
  send(socket, answer, peer);
  --*waiting;
}

}  // namespace

Async<void> serve_dns_udp(Pipeline& pipeline, udp::socket& socket) {
  const auto waiting = std::make_shared<std::size_t>(0);
  std::array<char, kMaxUdpPacket> buffer{};
  error_code error;
  socket.non_blocking(true, error);
  // As much as the machine lets everybody have (net.core.rmem_max): questions come in bursts.
  socket.set_option(udp::socket::receive_buffer_size(kReceiveBuffer), error);
  while (socket.is_open()) {
    const auto [failed] = co_await socket.async_wait(udp::socket::wait_read, kNoThrow);
    if (failed == asio::error::operation_aborted || failed == asio::error::bad_descriptor) {
      co_return;
    }
    for (int i = 0; i < kUdpBatch; ++i) {
      udp::endpoint peer;
      const std::size_t count = socket.receive_from(asio::buffer(buffer), peer, 0, error);
      if (error == asio::error::would_block || error == asio::error::bad_descriptor) break;
      if (error) continue;  // what an earlier answer met (ICMP)
      DnsQuestion question(pipeline, std::string_view(buffer.data(), count), true);
      if (question.now()) {
        send(socket, *question.now(), peer);
      } else if (*waiting >= kMaxUdpAtOnce) {
        send(socket, question.refuse_for_load(), peer);
      } else {
        ++*waiting;
        asio::co_spawn(socket.get_executor(),
                       answer_later(socket, std::move(question), peer, waiting), asio::detached);
      }
    }
  }
}

}  // namespace cofferdam::egressproxy
