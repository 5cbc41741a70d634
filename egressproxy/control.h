// The control socket: HTTP/1.1 over a Unix socket, for the user that started the service and nobody
// else. docs/processes.md has the requests.
#pragma once

#include "egressproxy/spare_descriptors.h"
#include "egressproxy/status_report.h"

namespace cofferdam::egressproxy {

class Control final {
 public:
  // Served at once; further ones wait in the backlog for a place.
  static constexpr std::size_t kMaxClients = 16;
  // Of a policy: 100,000 rules are about 10 MiB.
  static constexpr std::size_t kMaxBody = 32U << 20U;
  static constexpr milliseconds kTotalTime{10000};  // of one client, and once more for its body

  // Takes over a listening Unix stream socket. `owner` is the uid that may use it.
  static Result<std::unique_ptr<Control>> adopt(asio::io_context& context, int fd,
                                                std::uint32_t owner);

  void start(const StatusSources& sources, LivePolicy& policy);
  void stop();

 private:
  using Socket = asio::local::stream_protocol::socket;
  struct Request {
    std::string method;
    std::string target;
    std::string body;
  };
  struct Answer {
    int status = 200;
    std::string type = "application/json";
    std::string body;
  };
  // A request, or why there is none (a status of 0: the client is gone).
  struct Asked {
    std::optional<Request> request;
    Answer refusal;
  };
  Control(asio::io_context& context, std::uint32_t owner)
      : context_(context), acceptor_(context), owner_(owner), place_free_(context) {}
  Async<void> accept_all();
  Async<void> serve(Socket socket);
  Async<void> converse(Socket& socket);
  Async<Asked> read_request(Socket& socket, Deadline& deadline);
  Answer answer(const Request& request);
  Answer replace_policy(const std::string& text);
  Answer end_connection(std::string_view id);

  asio::io_context& context_;
  asio::local::stream_protocol::acceptor acceptor_;
  std::uint32_t owner_;
  std::optional<SpareDescriptors> spares_;
  asio::steady_timer place_free_;
  std::size_t clients_ = 0;
  const StatusSources* sources_ = nullptr;
  LivePolicy* policy_ = nullptr;
};

}  // namespace cofferdam::egressproxy
