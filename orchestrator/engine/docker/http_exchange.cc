#include "orchestrator/engine/docker/http_exchange.h"

#include <fcntl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <utility>

namespace cofferdam::orchestrator::docker {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Stream = beast::basic_stream<asio::local::stream_protocol>;

constexpr std::uint64_t kLargestAnswer = 64ULL << 20U;

// One exchange on its own io_context: connect, write, read.
class Exchange final {
 public:
  Exchange(const HttpCall& call, const HttpPatience& patience)
      : stream_(io_), watch_(io_), patience_(patience) {
    request_.version(11);
    request_.method_string(call.method);
    request_.target(call.target);
    request_.set(http::field::host, "docker");
    request_.set(http::field::connection, "close");
    if (!call.content_type.empty()) {
      request_.set(http::field::content_type, call.content_type);
      request_.body() = call.body;
    }
    request_.prepare_payload();
    parser_.body_limit(kLargestAnswer);
  }

  Result<HttpReply> run(const std::string& socket_path) {
    stream_.expires_after(patience_.deadline);
    watch_interrupt();
    stream_.async_connect(asio::local::stream_protocol::endpoint(socket_path),
                          [this](beast::error_code fault) { on_connected(fault); });
    io_.run();
    if (interrupted_) return Error::from_errno("Docker daemon", EINTR);
    if (fault_ == beast::error::timeout) {
      return Error("the Docker daemon at " + socket_path + " does not answer", ETIMEDOUT);
    }
    if (fault_) {
      return Error("the Docker daemon at " + socket_path + " cannot be asked: " + fault_.message(),
                   fault_.category() == boost::system::system_category() ? fault_.value() : EIO);
    }
    return HttpReply{parser_.get().result_int(), std::move(parser_.get().body())};
  }

 private:
  void watch_interrupt() {
    if (patience_.interrupt < 0) return;
    const int copy = ::fcntl(patience_.interrupt, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return;
    watch_.assign(copy);
    watch_.async_wait(asio::posix::stream_descriptor::wait_read, [this](beast::error_code fault) {
      if (fault) return;
      interrupted_ = true;
      stream_.close();
    });
  }
  void on_connected(beast::error_code fault) {
    if (fault) return end(fault);
    http::async_write(stream_, request_,
                      [this](beast::error_code error, std::size_t) { on_written(error); });
  }
  void on_written(beast::error_code fault) {
    if (fault) return end(fault);
    http::async_read(stream_, buffer_, parser_,
                     [this](beast::error_code error, std::size_t) { end(error); });
  }
  void end(beast::error_code fault) {
    fault_ = fault;
    watch_.close();
    stream_.close();
  }

  asio::io_context io_{1};
  Stream stream_;
  asio::posix::stream_descriptor watch_;
  HttpPatience patience_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  beast::error_code fault_;
  bool interrupted_ = false;
};

}  // namespace

Result<HttpReply> http_exchange(const std::string& socket_path, const HttpCall& call,
                                const HttpPatience& patience) {
  try {
    Exchange exchange(call, patience);
    return exchange.run(socket_path);
  } catch (const std::exception& fault) {
    return Error(std::string("Docker daemon: ") + fault.what());
  }
}

}  // namespace cofferdam::orchestrator::docker
