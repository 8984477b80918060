#include "server/ops/host_port.h"

#include <gtest/gtest.h>

namespace slotwise {
namespace {

TEST(HostPort, IsTakenApart) {
  for (const char* text :
       {"127.0.0.1:7070", "0.0.0.0:0", "[::1]:65535", "host-1.example.org:80", "localhost:1"}) {
    const auto parsed = ParseHostPort(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->str(), text);
  }
  EXPECT_EQ(ParseHostPort("[::1]:65535")->host, "[::1]");
  EXPECT_EQ(ParseHostPort("[::1]:65535")->port, 65535);
}

TEST(HostPort, IsRefusedIfAnythingElse) {
  for (const char* text : {"", ":", "7070", ":7070", "host:", "host:65536", "host:-1", "host:1x", "host: 1",
                           "::1:80", "[::1]", "a b:1", "a/b:1", "unix:/tmp/x", "http://a:1"}) {
    const auto parsed = ParseHostPort(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().message(),
              std::string("\"") + text + "\" is not host:port with a port of 0 to 65535");
  }
}

TEST(HostPort, KnowsTheWildcards) {
  EXPECT_TRUE(IsWildcard("0.0.0.0"));
  EXPECT_TRUE(IsWildcard("[::]"));
  EXPECT_FALSE(IsWildcard("127.0.0.1"));
}

}  // namespace
}  // namespace slotwise
