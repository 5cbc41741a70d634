#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/os/fd_passing.h"
#include "common/os/file_lock.h"
#include "common/os/files.h"
#include "common/os/pipes.h"
#include "common/os/process.h"

namespace cofferdam::os {
namespace {

TempDir temp_dir() {
  auto dir = TempDir::create("/tmp", "cofferdam-test-");
  EXPECT_TRUE(dir.ok());
  return std::move(dir).value();
}

TEST(FdPassing, APacketArrivesWholeWithItsDescriptors) {
  auto pair = make_packet_pair();
  ASSERT_TRUE(pair.ok());
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  ASSERT_TRUE(send_packet(pair->first.get(), "hello", {pipe->write.get()}).ok());
  auto packet = receive_packet(pair->second.get());
  ASSERT_TRUE(packet.ok());
  EXPECT_EQ(packet->bytes, "hello");
  ASSERT_EQ(packet->fds.size(), 1U);
  EXPECT_EQ(::fcntl(packet->fds[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ASSERT_TRUE(write_all(packet->fds[0].get(), "x").ok());
  char byte = 0;
  EXPECT_EQ(::read(pipe->read.get(), &byte, 1), 1);
}

TEST(FdPassing, EndOfStreamIsToldApartFromAPacket) {
  auto pair = make_packet_pair();
  pair->first.reset();
  auto packet = receive_packet(pair->second.get());
  ASSERT_TRUE(packet.ok());
  EXPECT_TRUE(packet->end_of_stream);
}

TEST(FdPassing, RefusesWhatIsTooLarge) {
  auto pair = make_packet_pair();
  EXPECT_FALSE(send_packet(pair->first.get(), std::string(kMaxPacket + 1, 'x')).ok());
  EXPECT_FALSE(send_packet(pair->first.get(), "").ok());
}

TEST(Process, AChildHasOnlyTheDescriptorsItWasGiven) {
  // Inheritable on purpose: the spawner must not rely on CLOEXEC.
  const UniqueFd stray(::open("/dev/null", O_RDONLY));
  ASSERT_TRUE(stray);
  SpawnOptions options;
  options.argv = {"/bin/ls", "/proc/self/fd"};
  const auto output = run_command(options, std::chrono::seconds(10));
  ASSERT_TRUE(output.ok()) << output.error().message();
  EXPECT_EQ(output->out, "0\n1\n2\n3\n");  // the last is the directory that it lists
}

TEST(Process, DescriptorsLandWhereAskedEvenWhenNumbersCross) {
  auto a = make_pipe();
  auto b = make_pipe();
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", "echo a >&7; echo b >&8"};
  options.fds = {{a->write.get(), 7}, {b->write.get(), 8}};
  if (a->write.get() != 8 && b->write.get() != 7) {
    options.fds = {{a->write.get(), b->write.get()}, {b->write.get(), a->write.get()}};
    options.argv[2] = "echo a >&" + std::to_string(b->write.get()) + "; echo b >&" +
                      std::to_string(a->write.get());
  }
  auto child = ChildProcess::spawn(options);
  ASSERT_TRUE(child.ok());
  ASSERT_EQ(child->wait()->code, 0);
  a->write.reset();
  b->write.reset();
  EXPECT_EQ(*read_fd(a->read.get()), "a\n");
  EXPECT_EQ(*read_fd(b->read.get()), "b\n");
}

TEST(Process, AMissingProgramIsAnErrorNotAnExit) {
  SpawnOptions options;
  options.argv = {"/nonexistent/program"};
  const auto child = ChildProcess::spawn(options);
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.error().error_number(), ENOENT);
}

TEST(Process, ATimeoutEndsTheCommand) {
  SpawnOptions options;
  options.argv = {"/bin/sleep", "5"};
  const auto output = run_command(options, std::chrono::milliseconds(50));
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(output.error().error_number(), ETIMEDOUT);
}

TEST(Process, ASignalIsToldApartFromAnExit) {
  SpawnOptions options;
  options.argv = {"/bin/sleep", "5"};
  auto child = ChildProcess::spawn(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(child->signal(SIGTERM).ok());
  const auto status = child->wait();
  EXPECT_TRUE(status->signalled);
  EXPECT_EQ(status->shell_status(), 128 + SIGTERM);
}

TEST(FileLock, IsHeldByOneOwnerAtATime) {
  const TempDir dir = temp_dir();
  auto first = FileLock::try_acquire(dir.path() / "lock");
  ASSERT_TRUE(first.ok() && first->has_value());
  auto second = FileLock::try_acquire(dir.path() / "lock");
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(second->has_value());
  first->reset();
  EXPECT_TRUE(FileLock::try_acquire(dir.path() / "lock")->has_value());
}

TEST(Files, AFileIsReplacedAsAWhole) {
  const TempDir dir = temp_dir();
  ASSERT_TRUE(write_file_atomic(dir.path() / "f", "one").ok());
  ASSERT_TRUE(write_file_atomic(dir.path() / "f", "two", 0644).ok());
  EXPECT_EQ(*read_file(dir.path() / "f"), "two");
  struct stat st {};
  ASSERT_EQ(::stat((dir.path() / "f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0644U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_FALSE(read_file(dir.path() / "f", 2).ok());
}

TEST(Files, RemoveTreeDoesNotFollowLinksAndTakesLockedDirectories) {
  const TempDir dir = temp_dir();
  ASSERT_TRUE(make_directories(dir.path() / "kept").ok());
  ASSERT_TRUE(write_file_atomic(dir.path() / "kept/f", "x").ok());
  ASSERT_TRUE(make_directories(dir.path() / "gone/a/b").ok());
  std::filesystem::create_symlink(dir.path() / "kept", dir.path() / "gone/a/link");
  std::filesystem::permissions(dir.path() / "gone/a", std::filesystem::perms::none);
  EXPECT_TRUE(remove_tree(dir.path() / "gone").ok());
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "gone"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() / "kept/f"));
  EXPECT_TRUE(remove_tree(dir.path() / "never").ok());
}

}  // namespace
}  // namespace cofferdam::os
