#include "server/ops/host_port.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

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

TEST(HostPort, IsRefusedIfItIsNotPrintableAscii) {
  using std::string_view_literals::operator""sv;
  for (const auto& [text, quoted] : {std::pair{"a\0b:1"sv, R"("a\x00b:1")"sv},
                                     {"a\x1b[2J:1"sv, R"("a\x1b[2J:1")"sv},
                                     {"m\xc3\xbcller:1"sv, R"("m\xc3\xbcller:1")"sv},
                                     {"a\x7f:1"sv, R"("a\x7f:1")"sv},
                                     {"a\r:1"sv, R"("a\x0d:1")"sv}}) {
    const auto parsed = ParseHostPort(text);
    ASSERT_FALSE(parsed.ok()) << quoted;
    EXPECT_EQ(parsed.status().message(), std::string(quoted) + " is not host:port with a port of 0 to 65535");
  }
}

TEST(HostPort, KnowsTheWildcards) {
  EXPECT_TRUE(IsWildcard("0.0.0.0"));
  EXPECT_TRUE(IsWildcard("[::]"));
  EXPECT_FALSE(IsWildcard("127.0.0.1"));
}

}  // namespace
}  // namespace slotwise
