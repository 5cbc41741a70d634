#include "egressproxy/deadlines.h"

#include <gtest/gtest.h>

namespace cofferdam::egressproxy {
namespace {

TEST(Deadlines, AreOnlyEverShortened) {
  Deadlines deadlines;
  EXPECT_TRUE(shorten_deadline(deadlines, "head=250").ok());
  EXPECT_EQ(deadlines.head, milliseconds(250));
  EXPECT_FALSE(shorten_deadline(deadlines, "head=251").ok());
  for (const char* text :
       {"tunnel=1800001", "first_byte=60001", "response=4294967295", "body=99999999999", "head=0",
        "head=-1", "head=", "head", "=5", "", "heads=5", "head=5ms", "head= 5"}) {
    EXPECT_FALSE(shorten_deadline(deadlines, text).ok()) << text;
  }
  for (const char* name : {"first_byte", "hello", "refused", "head", "keep_alive", "response",
                           "body", "upload", "write", "tunnel"}) {
    EXPECT_TRUE(shorten_deadline(deadlines, std::string(name) + "=100").ok()) << name;
  }
}

}  // namespace
}  // namespace cofferdam::egressproxy
