#include "server/access/access_control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

constexpr std::string_view kToken = "0123456789abcdef";
constexpr std::string_view kOther = "fedcba9876543210";

class AccessControlTest : public testing::Test {
 protected:
  AccessControlTest() { std::filesystem::create_directories(folder_); }
  ~AccessControlTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name, std::string_view text) const {
    const std::string path = folder_ / name;
    std::ofstream(path + ".new", std::ios::binary) << text;
    std::filesystem::rename(path + ".new", path);
    return path;
  }
  KnownPrincipal Known(const std::string& name, std::string_view text) const {
    return {.name = name,
            .token_file = File(name, text),
            .grants = {{.table = "ads", .rights = Rights::kRead | Rights::kPush}}};
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      ("access_" + std::to_string(std::hash<std::string>{}(
                       testing::UnitTest::GetInstance()->current_test_info()->name())));
};

std::string NameOf(const PrincipalPtr& who) {
  if (!who) return "anybody";
  return who->refusal.ok() ? who->name : "nobody";
}

TEST_F(AccessControlTest, ServesEverybodyWithoutPrincipals) {
  const auto access = AccessControl::Make({});
  ASSERT_TRUE(access.ok());
  EXPECT_TRUE((*access)->open());
  EXPECT_EQ(NameOf((*access)->Authenticate("Bearer whatever", {})), "anybody");
  EXPECT_TRUE(Allow(nullptr, Rights::kAdmin, kAllTables, {}).ok());
  EXPECT_EQ((*access)->Refused().unauthenticated, 0u);
}

TEST_F(AccessControlTest, KnowsWhoHasAToken) {
  const std::string several =
      std::string(kOther) + "\r\n\n" + std::string(kOther) + "2";  // the last line has no end
  const auto access = AccessControl::Make({Known("one", kToken), Known("other", several)});
  ASSERT_TRUE(access.ok()) << access.status().message();
  const auto who = [&](const std::string& authorization) {
    return NameOf((*access)->Authenticate(authorization, {}));
  };
  EXPECT_EQ(who("Bearer " + std::string(kToken)), "one");
  EXPECT_EQ(who("bEARER " + std::string(kToken)), "one");  // RFC 9110, 11.1
  EXPECT_EQ(who("Bearer " + std::string(kOther)), "other");
  EXPECT_EQ(who("Bearer " + std::string(kOther) + "2"), "other");
  EXPECT_EQ((*access)->Refused().unauthenticated, 0u);
  std::uint64_t refused = 0;
  for (const std::string& wrong :
       {std::string(), std::string("Bearer"), std::string("Bearer "),
        std::string("Basic ") + std::string(kToken), std::string("Bearer ") + std::string(kToken) + " ",
        "Bearer " + std::string(kOther) + "\r", "Bearer " + std::string(1 << 20, 'x')}) {
    EXPECT_EQ(who(wrong), "nobody") << wrong.substr(0, 50);
    EXPECT_EQ((*access)->Refused().unauthenticated, ++refused);
  }
}

TEST_F(AccessControlTest, KnowsWhomACertificateNamesUnlessThereIsAToken) {
  KnownPrincipal named{.name = "named", .certificate_name = "a.example", .grants = {}};
  const auto access = AccessControl::Make({Known("one", kToken), named});
  ASSERT_TRUE(access.ok());
  const std::vector<std::string> names{"x", "a.example"};
  EXPECT_EQ(NameOf((*access)->Authenticate("", names)), "named");
  EXPECT_EQ(NameOf((*access)->Authenticate("Bearer " + std::string(kToken), names)), "one");
  EXPECT_EQ(NameOf((*access)->Authenticate("Bearer " + std::string(kOther), names)), "nobody");
  EXPECT_EQ(NameOf((*access)->Authenticate("", std::vector<std::string>{"a.example.org", ""})), "nobody");
}

TEST_F(AccessControlTest, TakesATokenAsAPasswordOfHttp) {
  const auto access =
      AccessControl::Make({Known("one", kToken), Known("other", "0123456789abcdefg\n0123456789abcdefgh")});
  ASSERT_TRUE(access.ok());
  const auto who = [&](std::string_view authorization) {
    return NameOf((*access)->AuthenticateHttp(authorization));
  };
  EXPECT_EQ(who("Basic OjAxMjM0NTY3ODlhYmNkZWY="), "one");        // ":0123456789abcdef"
  EXPECT_EQ(who("Basic YW46MDEyMzQ1Njc4OWFiY2RlZg=="), "one");    // "an:..."
  EXPECT_EQ(who("basic YW46MDEyMzQ1Njc4OWFiY2RlZmc="), "other");  // one letter more
  EXPECT_EQ(who("basic YW46MDEyMzQ1Njc4OWFiY2RlZmdo"), "other");  // and another
  EXPECT_EQ(who("Bearer 0123456789abcdef"), "one");
  for (const char* const wrong : {"", "Basic ", "Basic =", "Basic ====", "Basic !!!!", "Basic YW46",
                                  "Basic MDEyMzQ1Njc4OWFiY2RlZg==", "Basic YW46MDEyMzQ1Njc4OWFiY2RlZg",
                                  "Basic YW46MDEyMzQ1Njc4OWFiY2Rl", "Digest x"}) {
    EXPECT_EQ(who(wrong), "nobody") << wrong;
  }
}

TEST_F(AccessControlTest, RefusesFilesThatAreWrong) {
  const auto why = [&](std::string_view text) {
    const auto access = AccessControl::Make({Known("one", text)});
    return access.ok() ? std::string("none") : access.status().message();
  };
  EXPECT_EQ(why(kToken), "none");
  EXPECT_NE(why("").find("has no token"), std::string::npos);
  EXPECT_NE(why("\n\n").find("has no token"), std::string::npos);
  EXPECT_NE(why("0123456789abcde").find(":1: a token of 15 characters"), std::string::npos);
  EXPECT_EQ(why(std::string(4096, 'x')), "none");
  EXPECT_NE(why(std::string(4097, 'x')).find("a token of 4097 characters"), std::string::npos);
  EXPECT_NE(why(std::string(1 << 20, 'x')).find("too long"), std::string::npos);
  EXPECT_NE(why("\n0123456789 abcdef").find(":2: a token has a character"), std::string::npos);
  EXPECT_NE(why("0123456789abcde\xc3\xa9").find("a token has a character"), std::string::npos);
  std::string many;
  for (char c = 'a'; c < 'a' + 16; ++c) many += std::string(16, c) + "\n";
  EXPECT_EQ(why(many), "none");
  EXPECT_NE(why(many + std::string(16, 'z')).find("has 17 tokens: at most 16"), std::string::npos);
  const auto twice = AccessControl::Make(
      {Known("one", kToken), Known("two", std::string(kOther) + "\n" + std::string(kToken))});
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.status().message(),
            "principals one and two have a token in common: nobody could say who calls");
}

TEST_F(AccessControlTest, ReadsAFileAgainThatChanges) {
  const auto access = AccessControl::Make({Known("one", kToken)}, std::chrono::milliseconds(5));
  ASSERT_TRUE(access.ok());
  const auto is_known = [&](std::string_view token) {
    return NameOf((*access)->AuthenticateToken(token)) == "one";
  };
  const auto wait_for = [&](std::string_view token, bool known) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (is_known(token) != known && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return is_known(token) == known;
  };
  EXPECT_TRUE(is_known(kToken));
  File("one", kOther);
  EXPECT_TRUE(wait_for(kOther, true));
  EXPECT_FALSE(is_known(kToken));
  File("one", "short");
  File("one", kToken);
  EXPECT_TRUE(wait_for(kToken, true));
  EXPECT_FALSE(is_known(kOther));
}

TEST(Principal, HasTheRightsOfAllItsGrants) {
  const auto refused = std::make_shared<RefusedAccess>();
  const Principal who{.name = "one",
                      .grants = {{.table = "ads", .rights = Rights::kRead},
                                 {.table = "ads", .rights = Rights::kRows},
                                 {.table = "*", .rights = Rights::kObserve}},
                      .refused = refused};
  EXPECT_EQ(who.On("ads"), Rights::kRead | Rights::kRows | Rights::kObserve);
  EXPECT_EQ(who.On("users"), Rights::kObserve);
  EXPECT_EQ(who.On("ad"), Rights::kObserve);
  EXPECT_TRUE(Allow(&who, Rights::kRead | Rights::kRows, "ads", "\"ads\"").ok());
  EXPECT_TRUE(Allow(&who, Rights::kNone, "users", "\"users\"").ok());
  EXPECT_EQ(refused->permission_denied, 0u);
  EXPECT_EQ(Allow(&who, Rights::kRead | Rights::kPush | Rights::kAdmin, "ads", "\"ads\""),
            PermissionDenied("one may not: it needs push and admin on table \"ads\" (security.principals)"));
  EXPECT_EQ(Allow(&who, Rights::kRead, kAllTables, {}),
            PermissionDenied("one may not: it needs read on all tables (security.principals)"));
  EXPECT_EQ(refused->permission_denied, 2u);
}

}  // namespace
}  // namespace slotwise
