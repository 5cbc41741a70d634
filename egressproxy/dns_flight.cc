#include "egressproxy/dns_flight.h"

#include <algorithm>
#include <string>

namespace cofferdam::egressproxy {
namespace {

constexpr int kTries = 3;

// c-ares wants "ADDRESS:PORT,[ADDRESS6]:PORT,…".
std::string servers_text(const std::vector<policy::EgressPolicy::Server>& servers,
                         std::size_t first) {
  std::string text;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const auto& server = servers[(first + i) % servers.size()];
    if (!text.empty()) text += ',';
    text += server.address.to_host_text() + ":" + std::to_string(server.port);
  }
  return text;
}

Lookup failed(policy::Reason reason) {
  Lookup lookup;
  lookup.reason = reason;
  return lookup;
}

}  // namespace

void DnsFlight::start(asio::io_context& context, const Resolver::Options& options,
                      std::size_t first, const policy::HostName& name, dns::Type type, Done done) {
  const std::shared_ptr<DnsFlight> flight(new DnsFlight(context, name, type, std::move(done)));
  flight->servers_ = servers_text(options.servers, first);
  flight->timeout_ = options.timeout;
  if (!flight->open(false)) {
    asio::post(context, [flight] { flight->finish(failed(policy::Reason::kResolveFailed)); });
    return;
  }
  flight->total_.expires_after(options.timeout);
  flight->total_.async_wait([flight](const error_code& error) {
    if (error) return;
    Lookup lookup = failed(policy::Reason::kResolveTimeout);
    lookup.kept_waiting = true;
    flight->finish(std::move(lookup));
  });
  flight->ask();
}

DnsFlight::DnsFlight(asio::io_context& context, policy::HostName name, dns::Type type, Done done)
    : context_(context),
      name_(std::move(name)),
      type_(type),
      done_(std::move(done)),
      retry_(context),
      total_(context) {}

DnsFlight::~DnsFlight() {
  close();
}

void DnsFlight::close() {
  if (channel_ != nullptr) ares_destroy(channel_);
  channel_ = nullptr;
}

bool DnsFlight::open(bool tcp) {
  tcp_ = tcp;
  ares_options set{};
  char lookups[] = "b";
  set.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS;
  if (tcp) set.flags |= ARES_FLAG_USEVC;
  set.lookups = lookups;
  set.tries = kTries;
  set.ndots = 1;
  set.ednspsz = 1232;
  // Tries wait once, twice, four times as long.
  set.timeout = static_cast<int>(std::max<milliseconds::rep>(timeout_.count() / 5, 100));
  set.sock_state_cb_data = this;
  set.sock_state_cb = [](void* self, ares_socket_t fd, int readable, int writable) {
    static_cast<DnsFlight*>(self)->want(fd, readable != 0, writable != 0);
  };
  // With every option told, c-ares reads no file and no variable for its configuration.
  const int mask = ARES_OPT_FLAGS | ARES_OPT_LOOKUPS | ARES_OPT_TRIES | ARES_OPT_NDOTS |
                   ARES_OPT_EDNSPSZ | ARES_OPT_TIMEOUTMS | ARES_OPT_SOCK_STATE_CB |
                   ARES_OPT_DOMAINS | ARES_OPT_SORTLIST | ARES_OPT_SERVERS | ARES_OPT_NOROTATE;
  in_addr nowhere{};
  set.servers = &nowhere;
  set.nservers = 1;  // replaced below: this field only holds IPv4
  if (ares_init_options(&channel_, &set, mask) != ARES_SUCCESS) {
    channel_ = nullptr;
    return false;
  }
  return ares_set_servers_ports_csv(channel_, servers_.c_str()) == ARES_SUCCESS;
}

void DnsFlight::ask() {
  ares_query(
      channel_, name_.text().c_str(), /*dnsclass=*/1, static_cast<int>(type_),
      [](void* self, int status, int timeouts, unsigned char* bytes, int size) {
        static_cast<DnsFlight*>(self)->answered(status, timeouts, bytes, size);
      },
      this);
  after_progress();
}

void DnsFlight::answered(int status, int timeouts, const unsigned char* bytes, int size) {
  if (finished_ || result_ || status == ARES_EDESTRUCTION) return;
  if (status == ARES_ETIMEOUT) {
    result_ = failed(policy::Reason::kResolveTimeout);
    result_->kept_waiting = true;
    return;
  }
  // c-ares takes a packet without the response bit for an answer; whoever sent it, over TCP the
  // server itself is heard.
  constexpr unsigned kResponseBit = 0x80;
  if (bytes != nullptr && size > 2 && (bytes[2] & kResponseBit) == 0 && !tcp_) {
    again_ = true;
    return;
  }
  const bool answer = status == ARES_SUCCESS || status == ARES_ENODATA || status == ARES_ENOTFOUND;
  result_ = failed(policy::Reason::kResolveFailed);
  result_->kept_waiting = timeouts > 0;
  if (!answer || bytes == nullptr) return;
  auto parsed = dns::parse_answer(
      {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)}, name_, type_);
  if (!parsed) return;
  if (parsed->rcode != dns::Rcode::kNoError && parsed->rcode != dns::Rcode::kNxDomain) return;
  result_->reason = policy::Reason::kAllowed;
  result_->rcode = parsed->rcode;
  if (parsed->rcode == dns::Rcode::kNoError) result_->addresses = std::move(parsed->addresses);
  result_->ttl = parsed->ttl;
  result_->aliases = std::move(parsed->aliases);
}

void DnsFlight::want(ares_socket_t fd, bool readable, bool writable) {
  auto found = sockets_.find(fd);
  if (!readable && !writable) {
    if (found == sockets_.end()) return;
    // c-ares closes it next: give it up without closing.
    error_code ignored;
    found->second->descriptor.cancel(ignored);
    (void)found->second->descriptor.release();
    sockets_.erase(found);
    return;
  }
  if (found == sockets_.end()) {
    // No exception may pass through c-ares; what cannot be watched times out.
    asio::posix::stream_descriptor descriptor(context_);
    error_code error;
    descriptor.assign(fd, error);
    if (error) return;
    auto socket = std::make_shared<Socket>(std::move(descriptor));
    found = sockets_.emplace(fd, std::move(socket)).first;
  }
  found->second->readable = readable;
  found->second->writable = writable;
  arm(fd);
}

void DnsFlight::arm(ares_socket_t fd) {
  const auto found = sockets_.find(fd);
  if (found == sockets_.end()) return;
  const std::shared_ptr<Socket> socket = found->second;
  const auto wait = [this, fd, socket](bool write) {
    const auto kind = write ? asio::posix::stream_descriptor::wait_write
                            : asio::posix::stream_descriptor::wait_read;
    (write ? socket->writing : socket->reading) = true;
    socket->descriptor.async_wait(kind, [self = shared_from_this(), fd, socket,
                                         write](const error_code& error) {
      (write ? socket->writing : socket->reading) = false;
      if (error || self->finished_) return;
      ares_process_fd(self->channel_, write ? ARES_SOCKET_BAD : fd, write ? fd : ARES_SOCKET_BAD);
      self->arm(fd);
      self->after_progress();
    });
  };
  if (socket->readable && !socket->reading) wait(false);
  if (socket->writable && !socket->writing) wait(true);
}

void DnsFlight::arm_timer() {
  timeval buffer{};
  const timeval* next = ares_timeout(channel_, nullptr, &buffer);
  if (next == nullptr) return;
  retry_.expires_after(std::chrono::seconds(next->tv_sec) +
                       std::chrono::microseconds(next->tv_usec) + milliseconds(1));
  retry_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->finished_) return;
    ares_process_fd(self->channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    self->after_progress();
  });
}

void DnsFlight::after_progress() {
  if (finished_) return;
  if (std::exchange(again_, false)) {
    asio::post(context_, [self = shared_from_this()] {
      if (self->finished_) return;
      self->close();
      if (!self->open(true)) {
        self->finish(failed(policy::Reason::kResolveFailed));
      } else {
        self->ask();
      }
    });
    return;
  }
  if (!result_) {
    arm_timer();
    return;
  }
  asio::post(context_, [self = shared_from_this()] {
    if (self->result_) self->finish(std::move(*self->result_));
  });
}

void DnsFlight::finish(Lookup lookup) {
  if (finished_) return;
  finished_ = true;
  retry_.cancel();
  total_.cancel();
  close();
  done_(std::move(lookup));
}

}  // namespace cofferdam::egressproxy
