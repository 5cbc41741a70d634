#include "egressproxy/dns_server.h"

#include <array>

namespace cofferdam::egressproxy {
namespace {

using dns::Query;
using dns::Rcode;
using dns::Record;
using dns::Reply;
using dns::Type;
using policy::Reason;
using policy::Verdict;

constexpr std::uint16_t kClassInternet = 1;
constexpr std::uint16_t kTypeIxfr = 251;
constexpr std::uint16_t kTypeAxfr = 252;
constexpr std::uint16_t kEdeBlocked = 15;  // RFC 8914
constexpr std::uint16_t kEdeNoReachable = 22;
constexpr std::uint32_t kPtrTtl = 60;  // seconds
constexpr std::size_t kMaxUdpAtOnce = 512;
constexpr std::size_t kMaxTcpAnswer = 65535;
constexpr milliseconds kTcpIdle = seconds(30);

Reply plain(Rcode rcode) {
  Reply reply;
  reply.rcode = rcode;
  return reply;
}

// "No" with its reason. A denied name does not exist; a name whose addresses are refused exists
// without any, because NXDOMAIN for one type makes some clients forget the other.
Reply negative(Rcode rcode, Reason reason) {
  Reply reply = plain(rcode);
  reply.soa = true;
  reply.extended_error = kEdeBlocked;
  reply.extended_text = policy::to_text(reason);
  return reply;
}

void record(Pipeline& pipeline, const Query& query, const Answered& answered) {
  DnsRecord record;
  record.decision = answered.decision;
  record.host = query.name;
  record.type = dns::type_text(query.type);
  record.addresses = answered.addresses;
  record.dropped = answered.dropped;
  pipeline.recorder().record(record);
}

// Names of a pinned address; no other reverse name is known here.
Reply reverse(Pipeline& pipeline, const Query& query) {
  Answered answered;
  Reply reply = negative(Rcode::kNxDomain, Reason::kNoRule);
  const auto address = dns::reverse_address(query.name);
  if (address) {
    const auto names = pipeline.pins().names(*address);
    if (!names.empty()) {
      reply = plain(Rcode::kNoError);
      answered.decision = {Verdict::kAllow, Reason::kAllowed, {}};
      for (const auto& name : names) {
        reply.answers.push_back({Type::kPtr, kPtrTtl, dns::name_data(name)});
      }
    }
  }
  record(pipeline, query, answered);
  return reply;
}

Reply positive(const Answered& answered, Type type) {
  Reply reply = plain(answered.rcode);
  if (answered.addresses.empty()) reply.soa = true;
  for (const auto& address : answered.addresses) {
    reply.answers.push_back({type, answered.ttl, dns::address_data(address)});
  }
  return reply;
}

Async<Reply> reply_to(Pipeline& pipeline, const Query& query) {
  if (query.edns_version != 0) co_return plain(Rcode::kBadVers);
  if (query.qclass != kClassInternet) co_return plain(Rcode::kRefused);
  if (query.type == kTypeAxfr || query.type == kTypeIxfr) co_return plain(Rcode::kRefused);
  if (!query.name_is_host) co_return plain(Rcode::kFormErr);
  const auto type = static_cast<Type>(query.type);
  if (type == Type::kPtr && query.name.ends_with(".arpa")) co_return reverse(pipeline, query);
  const auto name = policy::HostName::parse(query.name);
  if (!name) {
    Answered answered;
    answered.decision.reason = Reason::kNameInvalid;
    record(pipeline, query, answered);
    co_return negative(Rcode::kNxDomain, Reason::kNameInvalid);
  }
  const bool decided = pipeline.policy().decide_lookup(*name).allowed();
  const Answered answered = co_await pipeline.answer(*name, type);
  record(pipeline, query, answered);
  switch (answered.decision.verdict) {
    case Verdict::kAllow:
      co_return positive(answered, type);
    case Verdict::kDeny:
      // Not "there is none": that would be kept, and the next minute may say otherwise.
      if (policy::is_retryable(answered.decision.reason)) {
        Reply later = negative(Rcode::kServFail, answered.decision.reason);
        later.soa = false;
        co_return later;
      }
      co_return negative(decided ? Rcode::kNoError : Rcode::kNxDomain, answered.decision.reason);
    case Verdict::kError:
      break;
  }
  Reply reply = plain(Rcode::kServFail);
  reply.extended_error = kEdeNoReachable;
  reply.extended_text = policy::to_text(answered.decision.reason);
  co_return reply;
}

Async<void> answer_udp(Pipeline& pipeline, udp::socket& socket, std::string packet,
                       udp::endpoint peer, std::shared_ptr<std::size_t> running) {
  const std::string answer = co_await answer_dns(pipeline, std::move(packet), true);
  if (!answer.empty()) {
    co_await socket.async_send_to(asio::buffer(answer), peer, kNoThrow);
  }
  --*running;
}

}  // namespace

Async<std::string> answer_dns(Pipeline& pipeline, std::string packet, bool udp) {
  const dns::ParsedQuery parsed = dns::parse_query(packet);
  if (parsed.drop) co_return std::string();
  if (parsed.error) co_return dns::write_error(packet, *parsed.error);
  const Reply reply = co_await reply_to(pipeline, parsed.query);
  co_return dns::write_reply(parsed.query, reply, udp ? parsed.query.payload_size : kMaxTcpAnswer);
}

Async<void> serve_dns_udp(Pipeline& pipeline, udp::socket& socket) {
  const auto running = std::make_shared<std::size_t>(0);
  std::array<char, 4096> buffer{};
  while (socket.is_open()) {
    udp::endpoint peer;
    const auto [error, count] =
        co_await socket.async_receive_from(asio::buffer(buffer), peer, kNoThrow);
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
    if (error || *running >= kMaxUdpAtOnce) continue;
    ++*running;
    std::string packet(buffer.data(), count);
    asio::co_spawn(socket.get_executor(),
                   answer_udp(pipeline, socket, std::move(packet), peer, running), asio::detached);
  }
}

Async<void> serve_dns_tcp(Pipeline& pipeline, Stream& downstream) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, kTcpIdle, [&downstream] { downstream.close(); });
  while (true) {
    const std::string_view bytes = downstream.buffered();
    const std::size_t size =
        bytes.size() < 2 ? 0
                         : static_cast<std::size_t>(static_cast<unsigned char>(bytes[0]) * 256U +
                                                    static_cast<unsigned char>(bytes[1]));
    if (bytes.size() < 2 || bytes.size() < size + 2) {
      if (co_await downstream.read_more()) break;
      continue;
    }
    std::string packet(bytes.substr(2, size));
    downstream.consume(size + 2);
    const std::string answer = co_await answer_dns(pipeline, std::move(packet), false);
    if (answer.empty()) break;
    std::string framed;
    framed += static_cast<char>(answer.size() >> 8U);
    framed += static_cast<char>(answer.size() & 0xffU);
    framed += answer;
    if (co_await downstream.write(framed)) break;
    deadline.extend(kTcpIdle);
  }
  downstream.close();
}

}  // namespace cofferdam::egressproxy
