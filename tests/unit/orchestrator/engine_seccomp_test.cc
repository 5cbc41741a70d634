#include <gtest/gtest.h>
#include <unistd.h>

#include "common/os/files.h"
#include "orchestrator/engine/seccomp_policy.h"

namespace cofferdam::orchestrator {
namespace {

std::string policy_with(const std::string& allow, const std::string& allow_when = "",
                        const std::string& refuse = "") {
  return R"({"version":1,"allow":[)" + allow + R"(],"allow_when":[)" + allow_when +
         R"(],"unavailable":[],"refuse_when":[],"refuse":[)" + refuse + R"(],"newer":[]})";
}

TEST(SeccompPolicy, TheBuiltInOneIsValidAndFitsTheKernelsLimit) {
  const auto policy = SeccompPolicy::built_in();
  ASSERT_TRUE(policy.ok()) << policy.error().message();
  const auto programs = policy->compile();
  ASSERT_TRUE(programs.ok()) << programs.error().message();
  for (const int fd : {programs->refusals.get(), programs->allowlist.get()}) {
    const auto bytes = os::read_fd(fd);
    ASSERT_TRUE(bytes.ok());
    EXPECT_FALSE(bytes->empty());
    EXPECT_EQ(bytes->size() % 8, 0U);
    EXPECT_LE(bytes->size(), 4096U * 8);
  }
}

TEST(SeccompPolicy, RefusedCallsAnswerEpermAndUnnamedOnesEnosys) {
  const auto policy = SeccompPolicy::built_in();
  ASSERT_TRUE(policy.ok());
  for (const char* name : {"mount", "bpf", "keyctl", "setns", "socket", "clone", "unshare"}) {
    EXPECT_EQ(policy->answer(name), EPERM) << name;
  }
  EXPECT_EQ(policy->answer("999"), ENOSYS);
  EXPECT_EQ(policy->answer("io_uring_setup"), ENOSYS);
}

TEST(SeccompPolicy, RejectsWhatItDoesNotUnderstand) {
  const struct {
    const char* what;
    std::string text;
    const char* message;
  } kCases[] = {
      {"unknown call", policy_with(R"("raed")"), "unknown system call raed"},
      {"named twice", policy_with(R"("read","read")"), "named twice"},
      {"allowed and refused", policy_with(R"("mount")", "", R"("mount")"), "named twice"},
      {"condition made void",
       policy_with(R"("socket")",
                   R"({"syscall":"socket","args":[{"index":0,"mask":"0xff","value":"0x1"}]})"),
       "without its condition"},
      {"unknown key", R"({"version":1,"alow":[]})", "unknown key alow"},
      {"version", R"({"version":2})", "version must be 1"},
      {"no JSON", "{", "parse"},
  };
  for (const auto& c : kCases) {
    const auto policy = SeccompPolicy::parse(c.text);
    ASSERT_FALSE(policy.ok()) << c.what;
    if (std::string(c.message) != "parse") {
      EXPECT_NE(policy.error().message().find(c.message), std::string::npos)
          << c.what << ": " << policy.error().message();
    }
  }
}

TEST(SeccompPolicy, TheStrictProfileRefusesMoreAndAllowsNothingFurther) {
  const auto strict = SeccompPolicy::built_in("strict");
  ASSERT_TRUE(strict.ok()) << strict.error().message();
  ASSERT_TRUE(strict->compile().ok());
  const auto usual = SeccompPolicy::built_in();
  ASSERT_TRUE(usual.ok());
  for (const char* name : {"ptrace", "process_vm_readv", "shmget", "io_setup"}) {
    EXPECT_EQ(strict->answer(name), EPERM) << name;
    EXPECT_EQ(usual->answer(name), ENOSYS) << name << ": is allowed, so that nobody asks";
  }
  EXPECT_EQ(strict->answer("mount"), EPERM);
  EXPECT_FALSE(SeccompPolicy::built_in("loose").ok());
}

TEST(SeccompPolicy, AProfileThatNamesWhatIsNotAllowedIsRefused) {
  for (const char* text :
       {R"({"version":1,"refuse":["mount"]})", R"({"version":1,"refuse":["raed"]})",
        R"({"version":1,"allow":["mount"],"refuse":[]})", R"({"version":2,"refuse":[]})",
        R"({"version":1})", "{"}) {
    auto policy = SeccompPolicy::built_in();
    ASSERT_TRUE(policy.ok());
    EXPECT_FALSE(policy->refuse_further(text).ok()) << text;
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator
