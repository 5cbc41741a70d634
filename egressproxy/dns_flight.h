// One question to the servers, by a c-ares channel of its own: a fresh socket and port each time,
// and an end that is a destructor.
#pragma once

#include <ares.h>

#include <functional>
#include <map>
#include <memory>

#include "common/policy/host_name.h"
#include "egressproxy/resolver.h"

namespace cofferdam::egressproxy {

class DnsFlight final : public std::enable_shared_from_this<DnsFlight> {
 public:
  using Done = std::function<void(Lookup)>;
  // Calls `done` exactly once, later, from the io_context. `first` of the servers is asked first,
  // the others after it.
  static void start(asio::io_context& context, const Resolver::Options& options, std::size_t first,
                    const policy::HostName& name, dns::Type type, Done done);
  ~DnsFlight();
  DnsFlight(const DnsFlight&) = delete;
  DnsFlight& operator=(const DnsFlight&) = delete;

 private:
  struct Socket {
    explicit Socket(asio::posix::stream_descriptor fd) : descriptor(std::move(fd)) {}
    asio::posix::stream_descriptor descriptor;
    bool readable = false;  // what c-ares waits for
    bool writable = false;
    bool reading = false;  // what is being waited for
    bool writing = false;
  };
  DnsFlight(asio::io_context& context, policy::HostName name, dns::Type type, Done done);
  // A channel and its question; over TCP when a reply could not be trusted.
  bool open(bool tcp);
  void close();
  void ask();
  void want(ares_socket_t fd, bool readable, bool writable);
  void arm(ares_socket_t fd);
  void arm_timer();
  void after_progress();
  void finish(Lookup lookup);
  void answered(int status, int timeouts, const unsigned char* bytes, int size);

  asio::io_context& context_;
  policy::HostName name_;
  dns::Type type_;
  Done done_;
  std::string servers_;  // as c-ares wants them
  milliseconds timeout_{0};
  ares_channel channel_ = nullptr;
  bool tcp_ = false;
  bool again_ = false;  // a packet that was no answer came: once more, over TCP
  std::map<ares_socket_t, std::shared_ptr<Socket>> sockets_;
  asio::steady_timer retry_;
  asio::steady_timer total_;
  std::optional<Lookup> result_;
  bool finished_ = false;
};

}  // namespace cofferdam::egressproxy
