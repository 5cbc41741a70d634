// The relay between real sockets of this machine's loopback: what comes out is what went in.
#include "egressproxy/relay.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "egressproxy/connections.h"
#include "egressproxy/relay_pool.h"
#include "tests/unit/egressproxy/socket_of.h"

namespace cofferdam::egressproxy {
namespace {

// More than sockets and buffers hold together, so that a sender must wait.
constexpr std::size_t kLarge = 48U << 20U;
constexpr milliseconds kIdle = seconds(60);

std::string pattern(std::size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  unsigned state = seed;
  for (char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24U);
  }
  return bytes;
}

class Relay : public ::testing::Test {
 protected:
  void SetUp() override {
    std::tie(client_, downstream_) = connected();
    std::tie(upstream_, server_) = connected();
  }

  void begin(milliseconds idle = kIdle) { asio::co_spawn(context_, run(idle), asio::detached); }
  void finish() { context_.run_for(seconds(60)); }

  Async<void> run(milliseconds idle) {
    const Relayed relayed = co_await relay(*downstream_, *upstream_, idle);
    relayed_ = relayed;
    // What the session does next.
    downstream_->close();
    upstream_->close();
  }

  // What is cut on its way may fail.
  Async<void> send(Stream& to, std::string_view bytes, bool then_end) {
    const error_code error = co_await to.write(bytes);
    EXPECT_TRUE(!error || !then_end);
    if (then_end) to.shutdown_send();
  }

  Async<void> collect(Stream& from, std::string& into) {
    while (true) {
      ended_ = co_await from.read_more();
      into += from.buffered();
      from.consume(from.buffered().size());
      if (ended_) co_return;
    }
  }

  asio::io_context context_{1};
  std::unique_ptr<Stream> client_, downstream_, upstream_, server_;
  std::optional<Relayed> relayed_;
  error_code ended_;

 private:
  std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> connected() {
    tcp::acceptor acceptor(context_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket near(context_);
    near.connect(acceptor.local_endpoint());
    tcp::socket far = acceptor.accept();
    return {stream_of(std::move(near)), stream_of(std::move(far))};
  }
};

TEST_F(Relay, CarriesBothWaysAndEachEndHalfClosesAlone) {
  std::string at_server;
  std::string at_client;
  begin();
  asio::co_spawn(context_, send(*client_, "up", true), asio::detached);
  const auto answer_after_the_end = [&]() -> Async<void> {
    co_await collect(*server_, at_server);
    co_await send(*server_, "down", true);
  };
  asio::co_spawn(context_, answer_after_the_end(), asio::detached);
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  finish();
  EXPECT_EQ(at_server, "up");
  EXPECT_EQ(at_client, "down");
  ASSERT_TRUE(relayed_);
  EXPECT_EQ(relayed_->up, 2U);
  EXPECT_EQ(relayed_->down, 4U);
}

// Thousands of tunnels that nobody reads must not make one process hold a gigabyte.
TEST(RelayPool, GivesSmallBuffersWhenManyAreHeld) {
  asio::io_context context{1};
  auto& pool = asio::use_service<RelayPool>(context);
  const auto bytes_of = [&pool](std::size_t count, std::size_t& total) {
    std::vector<std::unique_ptr<RelayBuffer>> held;
    total = 0;
    for (std::size_t i = 0; i < count; ++i) {
      held.push_back(pool.take_buffer());
      total += held.back()->space().size();
    }
    for (auto& buffer : held) pool.give_back(std::move(buffer));
  };
  std::size_t total = 0;
  for (int round = 0; round < 3; ++round) {
    bytes_of(20000, total);
    EXPECT_LT(total, std::size_t{256} << 20U) << "in round " << round;
    bytes_of(100, total);
    EXPECT_EQ(total, 100 * RelayBuffer::kSize) << "what was given back is there again";
  }
}

TEST_F(Relay, CarriesWhatIsTooLargeForEveryBuffer) {
  const std::string up = pattern(kLarge, 1);
  const std::string down = pattern(kLarge + 12345, 2);
  std::string at_server;
  std::string at_client;
  begin();
  asio::co_spawn(context_, send(*client_, up, true), asio::detached);
  asio::co_spawn(context_, send(*server_, down, true), asio::detached);
  asio::co_spawn(context_, collect(*server_, at_server), asio::detached);
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  finish();
  EXPECT_TRUE(at_server == up);
  EXPECT_TRUE(at_client == down);
  ASSERT_TRUE(relayed_);
  EXPECT_EQ(relayed_->up, up.size());
  EXPECT_EQ(relayed_->down, down.size());
}

TEST_F(Relay, ReadsNoMoreThanASlowReceiverTakes) {
  const std::string up = pattern(kLarge, 3);
  std::size_t written = 0;
  begin();
  const auto push = [&]() -> Async<void> {
    while (written < up.size()) {
      const std::size_t size = std::min<std::size_t>(up.size() - written, 1U << 16U);
      if (co_await client_->write({up.data() + written, size})) co_return;
      written += size;
    }
    client_->shutdown_send();
  };
  asio::co_spawn(context_, push(), asio::detached);
  context_.run_for(milliseconds(500));
  EXPECT_LT(written, up.size());  // nobody reads at the far end
  std::string at_server;
  asio::co_spawn(context_, collect(*server_, at_server), asio::detached);
  server_->shutdown_send();
  finish();
  EXPECT_TRUE(at_server == up);
}

TEST_F(Relay, SendsWhatWasReadAheadFirst) {
  std::string at_server;
  ASSERT_EQ(client_->socket().send(std::string_view("hello")).count, 5U);
  const auto read_ahead = [&]() -> Async<void> {
    EXPECT_FALSE(co_await downstream_->read_more());
    co_await run(kIdle);
  };
  asio::co_spawn(context_, read_ahead(), asio::detached);
  asio::co_spawn(context_, send(*client_, " again", true), asio::detached);
  asio::co_spawn(context_, collect(*server_, at_server), asio::detached);
  server_->shutdown_send();
  finish();
  EXPECT_EQ(at_server, "hello again");
  ASSERT_TRUE(relayed_);
  EXPECT_EQ(relayed_->up, 11U);
}

TEST_F(Relay, AResetOfOneSideResetsTheOther) {
  std::string at_client;
  begin();
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  const auto reset = [&]() -> Async<void> {
    co_await send(*server_, "half", false);
    while (at_client.size() < 4) co_await sleep_for(milliseconds(1));
    server_->abort();
  };
  asio::co_spawn(context_, reset(), asio::detached);
  finish();
  EXPECT_EQ(at_client, "half");
  EXPECT_EQ(ended_, asio::error::connection_reset);
  ASSERT_TRUE(relayed_);
  EXPECT_EQ(relayed_->down, 4U);
}

TEST_F(Relay, SilenceEndsItWithAReset) {
  std::string at_client;
  begin(milliseconds(100));
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  finish();
  EXPECT_EQ(ended_, asio::error::connection_reset);
  ASSERT_TRUE(relayed_);
}

// A workload that is gone looks like one that has only ended its side; its server may never say
// anything.
TEST_F(Relay, SilenceEndsAHalfClosedOneSooner) {
  std::string at_client;
  const auto began = Clock::now();
  begin(seconds(18));
  client_->shutdown_send();
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  finish();
  ASSERT_TRUE(relayed_);
  EXPECT_NE(ended_, asio::error::eof);
  EXPECT_LT(Clock::now() - began, seconds(17));
}

TEST_F(Relay, MovementPutsSilenceOff) {
  std::string at_server;
  begin(milliseconds(1000));
  const auto speak_now_and_then = [&]() -> Async<void> {
    for (int i = 0; i < 30; ++i) {
      co_await send(*client_, ".", false);
      co_await sleep_for(milliseconds(50));
    }
    client_->shutdown_send();
    server_->shutdown_send();
  };
  asio::co_spawn(context_, speak_now_and_then(), asio::detached);
  asio::co_spawn(context_, collect(*server_, at_server), asio::detached);
  finish();
  EXPECT_EQ(at_server, std::string(30, '.'));
}

TEST_F(Relay, ClosingAStreamFromOutsideEndsIt) {
  begin();
  const auto close = [&]() -> Async<void> {
    co_await sleep_for(milliseconds(20));
    upstream_->abort();
  };
  asio::co_spawn(context_, close(), asio::detached);
  finish();
  EXPECT_TRUE(relayed_);
}

// A budget of so many bytes each way, for the connection to the server.
class RelayWithBudget : public Relay {
 protected:
  static constexpr std::size_t kBudget = 300000;
  void SetUp() override {
    Relay::SetUp();
    rule_.left = rule_.limit = {kBudget, kBudget};
    const policy::IpAddress address = policy::IpAddress::from_v4({93, 184, 216, 34});
    ConnectionInfo info{policy::Endpoint{policy::Host(address), 443}, std::nullopt, address,
                        policy::Decision{policy::Verdict::kAllow, policy::Reason::kAllowed, "r"}};
    auto connection = connections_.open(std::move(info), Slot(sandbox_, rule_));
    connection->set_downstream(downstream_.get(), Connection::Bond::kTunnel);
    upstream_ = std::make_unique<Stream>(std::move(upstream_->socket()), std::move(connection));
  }
  void TearDown() override { upstream_.reset(); }
  policy::Reason reason() const {
    const auto& ended = upstream_->connection()->ended();
    return ended ? ended->reason : policy::Reason::kAllowed;
  }

  Account sandbox_;
  Account rule_;
  Connections connections_;
};

TEST_F(RelayWithBudget, ADownloadIsCutAtTheByteAndWithAReset) {
  const std::string down = pattern(2 * kBudget, 4);
  std::string at_client;
  begin();
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  asio::co_spawn(context_, send(*server_, down, false), asio::detached);
  finish();
  EXPECT_TRUE(at_client == down.substr(0, kBudget)) << at_client.size();
  EXPECT_EQ(ended_, asio::error::connection_reset);
  EXPECT_EQ(reason(), policy::Reason::kQuotaExceeded);
  EXPECT_EQ(relayed_->down, kBudget);
}

TEST_F(RelayWithBudget, AnUploadIsCutAtTheByteAndWithAReset) {
  const std::string up = pattern(2 * kBudget, 5);
  std::string at_server;
  begin();
  asio::co_spawn(context_, collect(*server_, at_server), asio::detached);
  asio::co_spawn(context_, send(*client_, up, false), asio::detached);
  finish();
  EXPECT_TRUE(at_server == up.substr(0, kBudget)) << at_server.size();
  EXPECT_EQ(ended_, asio::error::connection_reset);
  EXPECT_EQ(reason(), policy::Reason::kQuotaExceeded);
}

TEST_F(RelayWithBudget, ExactlyTheBudgetEndsInOrder) {
  const std::string down = pattern(kBudget, 6);
  std::string at_client;
  begin();
  client_->shutdown_send();
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  asio::co_spawn(context_, send(*server_, down, true), asio::detached);
  finish();
  EXPECT_TRUE(at_client == down) << at_client.size();
  EXPECT_EQ(ended_, asio::error::eof);
  EXPECT_EQ(reason(), policy::Reason::kAllowed);
}

TEST_F(RelayWithBudget, ManyBuffersInARowAreCutAtTheByteToo) {
  constexpr std::size_t kLarger = 20 * kBudget + 7;  // where splice(2) moves them
  rule_.left[static_cast<std::size_t>(Direction::kDown)] = kLarger;
  const std::string down = pattern(kLarger + kBudget, 7);
  std::string at_client;
  begin();
  asio::co_spawn(context_, collect(*client_, at_client), asio::detached);
  asio::co_spawn(context_, send(*server_, down, false), asio::detached);
  finish();
  EXPECT_TRUE(at_client == down.substr(0, kLarger)) << at_client.size();
  EXPECT_EQ(reason(), policy::Reason::kQuotaExceeded);
}

TEST_F(Relay, StreamsThatHaveEndedAlreadyEndItAtOnce) {
  client_->shutdown_send();
  server_->shutdown_send();
  begin();
  finish();
  ASSERT_TRUE(relayed_);
  EXPECT_EQ(relayed_->up + relayed_->down, 0U);
}

TEST_F(Relay, ALoopThatIsDestroyedTakesItAlong) {
  auto context = std::make_unique<asio::io_context>(1);
  std::unique_ptr<Stream> one;
  std::unique_ptr<Stream> other;
  {
    tcp::acceptor acceptor(*context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket near(*context);
    near.connect(acceptor.local_endpoint());
    one = stream_of(std::move(near));
    other = stream_of(acceptor.accept());
  }
  const auto own = [](std::unique_ptr<Stream> here, std::unique_ptr<Stream> there) -> Async<void> {
    co_await relay(*here, *there, kIdle);
  };
  asio::co_spawn(*context, own(std::move(one), std::move(other)), asio::detached);
  context->run_for(milliseconds(20));
  context.reset();
}

}  // namespace
}  // namespace cofferdam::egressproxy
