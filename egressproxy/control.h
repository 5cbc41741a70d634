// The control socket: HTTP/1.1 and JSON over a Unix socket. GET /health, GET /stats.
#pragma once

#include "egressproxy/resolver.h"
#include "egressproxy/server.h"

namespace cofferdam::egressproxy {

class Control final {
 public:
  // Takes over a listening Unix stream socket.
  static Result<std::unique_ptr<Control>> adopt(asio::io_context& context, int fd);

  void start(const Server& server, Pipeline& pipeline, const Resolver& resolver);
  void stop();

 private:
  explicit Control(asio::io_context& context) : context_(context), acceptor_(context) {}
  Async<void> accept_all();
  Async<void> serve(asio::local::stream_protocol::socket socket);
  std::string answer(std::string_view head) const;

  asio::io_context& context_;
  asio::local::stream_protocol::acceptor acceptor_;
  const Server* server_ = nullptr;
  Pipeline* pipeline_ = nullptr;
  const Resolver* resolver_ = nullptr;
};

}  // namespace cofferdam::egressproxy
