#include "egressproxy/readiness.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <string>

#include "common/os/stream_socket.h"
#include "tests/unit/egressproxy/socket_of.h"

namespace cofferdam::egressproxy {
namespace {

// Both ends of a connection on loopback.
class Sockets : public ::testing::Test {
 protected:
  Sockets() {
    tcp::acceptor acceptor(context_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket near(context_);
    near.connect(acceptor.local_endpoint());
    near_.emplace(socket_of(std::move(near)));
    far_.emplace(socket_of(acceptor.accept()));
  }

  // What a wait that begins now comes to.
  struct Outcome {
    bool told = false;
    bool ready = false;
  };
  std::shared_ptr<Outcome> wait_for(Socket& socket, Way way) {
    auto outcome = std::make_shared<Outcome>();
    const auto waiting = [](Socket& one, Way what, std::shared_ptr<Outcome> into) -> Async<void> {
      const bool ready = co_await one.wait(what);
      *into = {true, ready};
    };
    asio::co_spawn(context_, waiting(socket, way, outcome), asio::detached);
    return outcome;
  }
  void run() {
    context_.restart();
    context_.run_for(milliseconds(200));
  }
  void say(std::string_view text) { ASSERT_EQ(far_->send(text).count, text.size()); }
  std::string hear() {
    std::array<char, 64> buffer{};
    return {buffer.data(), near_->receive(buffer).count};
  }
  // Until the peer takes no more.
  static std::size_t fill(Socket& socket) {
    const std::string block(65536, 'x');
    std::size_t sum = 0;
    while (true) {
      const os::Moved moved = socket.send(block);
      sum += moved.count;
      if (moved.state == os::Moving::kWouldBlock) return sum;
    }
  }
  static void drain(Socket& socket) {
    std::string buffer(1U << 20U, ' ');
    while (socket.receive(buffer).state == os::Moving::kMoved) {
    }
  }

  asio::io_context context_{1};
  std::optional<Socket> near_, far_;
};

TEST_F(Sockets, TellWhatComesBeforeTheWaitAndAfterIt) {
  say("one");
  const auto before = wait_for(*near_, Way::kRead);
  run();
  EXPECT_TRUE(before->ready);
  EXPECT_EQ(hear(), "one");
  const auto after = wait_for(*near_, Way::kRead);
  run();
  EXPECT_FALSE(after->told);
  say("two");
  run();
  EXPECT_TRUE(after->ready);
  EXPECT_EQ(hear(), "two");
}

TEST_F(Sockets, AreReadyUntilTheyAreFoundEmpty) {
  say("0123456789");
  const auto first = wait_for(*near_, Way::kRead);
  run();
  ASSERT_TRUE(first->ready);
  std::array<char, 4> part{};
  ASSERT_EQ(near_->receive(part).count, 4U);
  const auto second = wait_for(*near_, Way::kRead);
  run();
  EXPECT_TRUE(second->ready);
  EXPECT_EQ(hear(), "456789");
  const auto third = wait_for(*near_, Way::kRead);
  run();
  EXPECT_FALSE(third->told);
}

TEST_F(Sockets, TellAnEndEvenWhenItCameWithTheLastBytes) {
  say("last");
  far_->shutdown_send();
  const auto first = wait_for(*near_, Way::kRead);
  run();
  ASSERT_TRUE(first->ready);
  EXPECT_EQ(hear(), "last");  // a short read: it looks empty
  const auto second = wait_for(*near_, Way::kRead);
  run();
  EXPECT_TRUE(second->ready);
  EXPECT_EQ(near_->peek().state, os::Moving::kEnd);
}

// Or a loop would spin that has more to send than the peer takes.
TEST_F(Sockets, AreNotWritableBecauseThePeerHasEndedItsSide) {
  far_->shutdown_send();
  const auto end = wait_for(*near_, Way::kRead);
  run();
  ASSERT_TRUE(end->ready);
  fill(*near_);
  const auto room = wait_for(*near_, Way::kWrite);
  run();
  EXPECT_FALSE(room->told);
  drain(*far_);
  run();
  EXPECT_TRUE(room->ready);
}

TEST_F(Sockets, WaitBothWaysAtOnce) {
  fill(*near_);
  const auto room = wait_for(*near_, Way::kWrite);
  const auto words = wait_for(*near_, Way::kRead);
  run();
  EXPECT_FALSE(room->told || words->told);
  say("go on");
  run();
  EXPECT_TRUE(words->ready);
  EXPECT_FALSE(room->told);
  drain(*far_);
  run();
  EXPECT_TRUE(room->ready);
}

TEST_F(Sockets, ThatAreClosedEndTheirWaits) {
  const auto closed = wait_for(*near_, Way::kRead);
  const auto aborted = wait_for(*far_, Way::kRead);
  run();
  near_->close();
  EXPECT_FALSE(closed->told) << "never inside of close()";
  far_->abort();
  run();
  EXPECT_TRUE(closed->told && !closed->ready);
  EXPECT_TRUE(aborted->told && !aborted->ready);
  const auto late = wait_for(*near_, Way::kRead);
  run();
  EXPECT_TRUE(late->told && !late->ready);
}

TEST_F(Sockets, TellABrokenConnectionBothWays) {
  const auto words = wait_for(*near_, Way::kRead);
  fill(*near_);
  const auto room = wait_for(*near_, Way::kWrite);
  run();
  far_->abort();
  run();
  EXPECT_TRUE(words->ready);
  EXPECT_TRUE(room->ready);
  EXPECT_EQ(near_->peek().state, os::Moving::kFailed);
}

TEST_F(Sockets, AWaitEndsWithItsCoroutine) {
  asio::cancellation_signal cancel;
  bool ended = false;
  const auto waiting = [](Socket& one) -> Async<void> { (void)co_await one.wait(Way::kRead); };
  asio::co_spawn(context_, waiting(*near_),
                 asio::bind_cancellation_slot(cancel.slot(),
                                              [&](const std::exception_ptr&) { ended = true; }));
  run();
  EXPECT_FALSE(ended);
  cancel.emit(asio::cancellation_type::terminal);
  run();
  EXPECT_TRUE(ended);
}

TEST_F(Sockets, ALoopWithNobodyWaitingEnds) {
  const auto words = wait_for(*near_, Way::kRead);
  run();
  EXPECT_FALSE(context_.stopped());
  near_->cancel();
  context_.restart();
  context_.run();
  EXPECT_TRUE(words->told && !words->ready);
}

// One of the sockets is closed, and its place taken by another, by who is told of a neighbour's.
TEST_F(Sockets, NewsOfAClosedOneReachNobody) {
  for (int round = 0; round < 50; ++round) {
    std::vector<Socket> near;
    std::vector<Socket> far;
    tcp::acceptor acceptor(context_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    for (int i = 0; i < 4; ++i) {
      tcp::socket one(context_);
      one.connect(acceptor.local_endpoint());
      near.push_back(socket_of(std::move(one)));
      far.push_back(socket_of(acceptor.accept()));
    }
    int told = 0;
    const auto closing = [&](std::size_t own) -> Async<void> {
      const bool ready = co_await near[own].wait(Way::kRead);
      if (!ready) co_return;
      ++told;
      for (Socket& each : near) each.close();
    };
    for (std::size_t i = 0; i < near.size(); ++i) {
      asio::co_spawn(context_, closing(i), asio::detached);
    }
    context_.restart();
    context_.poll();
    for (Socket& each : far) ASSERT_EQ(each.send(std::string_view("x")).count, 1U);
    run();
    EXPECT_EQ(told, 1);
  }
}

TEST(StreamSocket, SaysWhenItSpeaksFirst) {
  const os::Opened opened = os::open_stream(false);
  ASSERT_TRUE(opened.fd);
  const auto quick = [&] {
    int value = -1;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(opened.fd.get(), IPPROTO_TCP, TCP_QUICKACK, &value, &size), 0);
    return value;
  };
  EXPECT_EQ(quick(), 1);
  os::send_with_handshake(opened.fd.get());
  EXPECT_EQ(quick(), 0);
}

}  // namespace
}  // namespace cofferdam::egressproxy
