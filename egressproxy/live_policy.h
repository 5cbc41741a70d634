// LivePolicy: the policy while the service runs. It is replaced in one step, and rules whose time
// is over (grants) leave by themselves, with the connections that they allowed. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

class LivePolicy final {
 public:
  // The clock is looked at least this often while a rule has an end: it may be set, and the machine
  // may sleep.
  static constexpr milliseconds kLongestWait{5000};

  LivePolicy(asio::io_context& context, Pipeline& pipeline);

  // Begins to watch for rules that end.
  void start();
  void stop();

  // Parsed whole before anything changes: an error leaves the old policy as it is. The new one must
  // be for this sandbox, and ask the same name servers, which are only read at the start.
  struct Replaced {
    std::uint64_t revision = 0;
    std::size_t ended = 0;  // connections that the new policy does not allow
  };
  Result<Replaced> replace(std::string_view text);

  // 1 at the start; one more with each change.
  std::uint64_t revision() const { return revision_; }

 private:
  std::size_t install(policy::EgressPolicy policy);
  void end_expired();
  void arm();

  Pipeline& pipeline_;
  asio::steady_timer timer_;
  std::uint64_t revision_ = 1;
  bool stopped_ = false;
};

}  // namespace cofferdam::egressproxy
