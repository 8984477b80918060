#include "server/access/access_control.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/access/local_user.h"
#include "server/access/small_file.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

constexpr std::string_view kToken = "0123456789abcdef";
constexpr std::string_view kOther = "fedcba9876543210";

class AccessControlTest : public testing::Test {
 protected:
  AccessControlTest() { std::filesystem::create_directories(folder_); }
  ~AccessControlTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }
  std::string File(const std::string& name, std::string_view text) const {
    const std::string path = Path(name);
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
  return who->refusal.ok() ? who->name : "unknown";
}

TEST_F(AccessControlTest, ServesEverybodyWithoutPrincipals) {
  const auto access = test::Must(AccessControl::Make({}));
  EXPECT_TRUE(access->open());
  EXPECT_EQ(NameOf(access->Authenticate("Bearer whatever", {})), "anybody");
  EXPECT_TRUE(Allow(nullptr, Rights::kAdmin, kAllTables, {}).ok());
  EXPECT_EQ(access->Refused().unauthenticated, 0u);
}

TEST_F(AccessControlTest, KnowsWhoHasAToken) {
  const std::string several =
      std::string(kOther) + "\r\n\n" + std::string(kOther) + "2";  // the last line has no end
  const auto access = test::Must(AccessControl::Make({Known("one", kToken), Known("other", several)}));
  const auto who = [&](const std::string& authorization) {
    return NameOf(access->Authenticate(authorization, {}));
  };
  EXPECT_EQ(who("Bearer " + std::string(kToken)), "one");
  EXPECT_EQ(who("bEARER " + std::string(kToken)), "one");  // RFC 9110, 11.1
  EXPECT_EQ(who("Bearer " + std::string(kOther)), "other");
  EXPECT_EQ(who("Bearer " + std::string(kOther) + "2"), "other");
  EXPECT_EQ(access->Refused().unauthenticated, 0u);
  std::uint64_t refused = 0;
  for (const std::string& wrong :
       {std::string(), std::string("Bearer"), std::string("Bearer "),
        std::string("Basic ") + std::string(kToken), std::string("Bearer ") + std::string(kToken) + " ",
        "Bearer " + std::string(kOther) + "\r", "Bearer " + std::string(1 << 20, 'x')}) {
    EXPECT_EQ(who(wrong), "unknown") << wrong.substr(0, 50);
    EXPECT_EQ(access->Refused().unauthenticated, ++refused);
  }
}

TEST_F(AccessControlTest, KnowsWhomACertificateNamesUnlessThereIsAToken) {
  KnownPrincipal named{.name = "named", .certificate_name = "a.example", .grants = {}};
  const auto access = test::Must(AccessControl::Make({Known("one", kToken), named}));
  const std::vector<std::string> names{"x", "a.example"};
  EXPECT_EQ(NameOf(access->Authenticate("", names)), "named");
  EXPECT_EQ(NameOf(access->Authenticate("Bearer " + std::string(kToken), names)), "one");
  EXPECT_EQ(NameOf(access->Authenticate("Bearer " + std::string(kOther), names)), "unknown");
  EXPECT_EQ(NameOf(access->Authenticate("", std::vector<std::string>{"a.example.org", ""})), "unknown");
}

TEST_F(AccessControlTest, TakesATokenAsAPasswordOfHttp) {
  const auto access = test::Must(
      AccessControl::Make({Known("one", kToken), Known("other", "0123456789abcdefg\n0123456789abcdefgh")}));
  const auto who = [&](std::string_view authorization) {
    return NameOf(access->AuthenticateHttp(authorization));
  };
  EXPECT_EQ(who("Basic OjAxMjM0NTY3ODlhYmNkZWY="), "one");        // ":0123456789abcdef"
  EXPECT_EQ(who("Basic YW46MDEyMzQ1Njc4OWFiY2RlZg=="), "one");    // "an:..."
  EXPECT_EQ(who("basic YW46MDEyMzQ1Njc4OWFiY2RlZmc="), "other");  // one letter more
  EXPECT_EQ(who("basic YW46MDEyMzQ1Njc4OWFiY2RlZmdo"), "other");  // and another
  EXPECT_EQ(who("Bearer 0123456789abcdef"), "one");
  for (const char* const wrong : {"", "Basic ", "Basic =", "Basic ====", "Basic !!!!", "Basic YW46",
                                  "Basic MDEyMzQ1Njc4OWFiY2RlZg==", "Basic YW46MDEyMzQ1Njc4OWFiY2RlZg",
                                  "Basic YW46MDEyMzQ1Njc4OWFiY2Rl", "Digest x"}) {
    EXPECT_EQ(who(wrong), "unknown") << wrong;
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
  EXPECT_NE(why(std::string(1 << 20, 'x')).find("longer than"), std::string::npos);
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
            "principals one and two have a token in common, which would not say who calls");
}

// A user who may write it can let himself in.
TEST_F(AccessControlTest, RefusesAFileThatOthersThanItsOwnerMayWrite) {
  using std::filesystem::perms;
  const KnownPrincipal one = Known("one", kToken);
  const auto why = [&](unsigned mode) {
    std::filesystem::permissions(one.token_file, perms(mode));
    const auto access = AccessControl::Make({one});
    return access.ok() ? std::string("none") : access.status().message();
  };
  for (const unsigned mode : {0400U, 0600U, 0640U, 0440U, 0644U}) EXPECT_EQ(why(mode), "none") << mode;
  for (const auto& [mode, name] :
       {std::pair(0620U, "0620"), std::pair(0602U, "0602"), std::pair(0666U, "0666")}) {
    EXPECT_EQ(why(mode), "the token_file of principal one: cannot read " + one.token_file + ": it has mode " +
                             name + ": only its owner may be able to write it (chmod go-w)");
  }
  for (const auto& [mode, warns] :
       {std::pair(0640U, false), std::pair(0644U, true), std::pair(0604U, true)}) {
    std::filesystem::permissions(one.token_file, perms(mode));
    EXPECT_EQ(!WhoElseReads(one.token_file).empty(), warns) << mode;
  }
  EXPECT_EQ(WhoElseReads(one.token_file),
            "it has mode 0604: every user of this host may read it (chmod o-r)");
  EXPECT_EQ(WhoElseReads("/nowhere"), "");
}

TEST_F(AccessControlTest, SaysAllThatIsWrong) {
  std::vector<TokenError> errors;
  const auto access = AccessControl::Make(
      {Known("one", kToken), Known("two", "short"), Known("three", kToken), Known("four", "")}, {}, errors);
  EXPECT_EQ(access, nullptr);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0].principal, 1u);
  EXPECT_NE(errors[0].message.find("a token of 5 characters"), std::string::npos);
  EXPECT_EQ(errors[1].principal, 3u);
  EXPECT_NE(errors[1].message.find("has no token"), std::string::npos);
  EXPECT_EQ(errors[2].principal, 2u);
  EXPECT_NE(errors[2].message.find("principals one and three have a token in common"), std::string::npos);
}

TEST_F(AccessControlTest, ReadsAFileAgainThatChanges) {
  const auto access =
      test::Must(AccessControl::Make({Known("one", kToken)}, {}, std::chrono::milliseconds(5)));
  const auto is_known = [&](std::string_view token) {
    return NameOf(access->AuthenticateToken(token)) == "one";
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

TEST_F(AccessControlTest, ReadsNoFileAgainThatOthersMayWrite) {
  const auto access = test::Must(AccessControl::Make(
      {Known("one", kToken), Known("witness", "witness-0123456789")}, {}, std::chrono::milliseconds(5)));
  const auto wait_for = [&](std::string_view token, const std::string& who) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (NameOf(access->AuthenticateToken(token)) != who && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    return NameOf(access->AuthenticateToken(token)) == who;
  };
  std::filesystem::permissions(File("open", kOther), std::filesystem::perms(0646));
  std::filesystem::rename(Path("open"), Path("one"));
  File("witness", "seen-since-0123456789");  // once this is taken, the other file was looked at
  EXPECT_TRUE(wait_for("seen-since-0123456789", "witness"));
  EXPECT_EQ(NameOf(access->AuthenticateToken(kOther)), "unknown");
  EXPECT_EQ(NameOf(access->AuthenticateToken(kToken)), "one");
  std::filesystem::permissions(Path("one"), std::filesystem::perms(0600));
  EXPECT_TRUE(wait_for(kOther, "one"));
  EXPECT_EQ(NameOf(access->AuthenticateToken(kToken)), "unknown");
}

// What one file gives up, another may have: whichever is looked at first, both are right in the end.
TEST_F(AccessControlTest, TakesATokenThatGoesFromOneFileToAnother) {
  for (const bool first_gets : {true, false}) {
    const std::string token(kToken);
    const std::string other(kOther);
    const std::string last = "abcdefabcdefabcdef";
    const auto access = test::Must(AccessControl::Make(
        {Known("one", first_gets ? other : token + "\n" + other),
         Known("two", first_gets ? token + "\n" + last : last), Known("witness", "witness-0123456789")},
        {}, std::chrono::milliseconds(5)));
    const std::string giver = first_gets ? "two" : "one";
    const std::string getter = first_gets ? "one" : "two";
    const std::string kept = first_gets ? last : other;
    const auto wait_for = [&](std::string_view whose, const std::string& who) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (NameOf(access->AuthenticateToken(whose)) != who && std::chrono::steady_clock::now() < limit) {
        std::this_thread::yield();
      }
      return NameOf(access->AuthenticateToken(whose));
    };
    EXPECT_EQ(wait_for(token, giver), giver);
    // Both have it for a while: so the first refuses its new file, until the second gives the token up.
    File(getter, (first_gets ? other : last) + "\n" + token + "\nanother-one-0123456789");
    File("witness", "seen-since-0123456789");
    EXPECT_EQ(wait_for("seen-since-0123456789", "witness"), "witness");
    EXPECT_EQ(NameOf(access->AuthenticateToken(token)), giver);
    EXPECT_EQ(NameOf(access->AuthenticateToken("another-one-0123456789")), "unknown");
    File(giver, kept);
    EXPECT_EQ(wait_for(token, getter), getter);
    EXPECT_EQ(wait_for("another-one-0123456789", getter), getter);
    EXPECT_EQ(NameOf(access->AuthenticateToken(kept)), giver);
  }
}

TEST_F(AccessControlTest, ACertificateThatNamesTwoIsUnknown) {
  KnownPrincipal one{.name = "one", .certificate_name = "a.example", .grants = {}};
  KnownPrincipal two{.name = "two", .certificate_name = "b.example", .grants = {}};
  const auto access = test::Must(AccessControl::Make({one, two}));
  EXPECT_EQ(NameOf(access->Authenticate("", std::vector<std::string>{"b.example", "c"})), "two");
  EXPECT_EQ(NameOf(access->Authenticate("", std::vector<std::string>{"b.example", "a.example"})), "unknown");
}

TEST_F(AccessControlTest, LetsInWhomItIsToldAndWhomItRunsAs) {
  constexpr std::uint32_t kSomebody = 4321;
  EXPECT_TRUE(test::Must(AccessControl::Make({}))->LetsIn(kSomebody));
  const auto access = test::Must(AccessControl::Make({Known("one", kToken)}, {kSomebody + 1}));
  EXPECT_TRUE(access->LetsIn(geteuid()));
  EXPECT_TRUE(access->LetsIn(kSomebody + 1));
  EXPECT_EQ(access->Refused().unauthenticated, 0u);
  EXPECT_FALSE(access->LetsIn(kSomebody));
  EXPECT_FALSE(access->LetsIn(std::numeric_limits<std::uint32_t>::max()));
  EXPECT_EQ(access->Refused().unauthenticated, 2u);
}

TEST(LocalUser, IsNamedOrNumbered) {
  EXPECT_EQ(*UserNumberOf("root"), 0u);
  EXPECT_EQ(*UserNumberOf("0"), 0u);
  EXPECT_EQ(*UserNumberOf("4321"), 4321u);  // whom no name stands for
  for (const char* const no_user :
       {"", "no such user", "65534", "nobody", "-1", "4294967295", "4294967296", " 0", "0 "}) {
    EXPECT_FALSE(UserNumberOf(no_user).ok()) << no_user;
  }
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
  EXPECT_TRUE(Allow(&who, Rights::kNone, "users", "\"users\"").ok())
      << "who observes may describe all tables";
  EXPECT_EQ(refused->permission_denied, 0u);
  EXPECT_EQ(Allow(&who, Rights::kRead | Rights::kPush | Rights::kAdmin, "ads", "\"ads\""),
            PermissionDenied("one may not: it needs push and admin on table \"ads\" (security.principals)"));
  EXPECT_EQ(Allow(&who, Rights::kRead, kAllTables, {}),
            PermissionDenied("one may not: it needs read on all tables (security.principals)"));
  EXPECT_EQ(refused->permission_denied, 2u);
}

}  // namespace
}  // namespace slotwise
