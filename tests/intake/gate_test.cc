#include "server/intake/gate.h"

#include <gtest/gtest.h>

#include <memory>

namespace slotwise {
namespace {

// A transport that forgets to ask who calls must not let everybody in.
TEST(Gate, RefusesACallerWhomADoorHasNotAsked) {
  const auto access = AccessControl::Make({{.name = "named", .certificate_name = "a.example", .grants = {}}});
  ASSERT_TRUE(access.ok());
  Gate gate(access->get());
  gate.Open();
  EXPECT_TRUE(gate.asks_who());
  EXPECT_EQ(gate.Enter(Caller("somebody")).code(), StatusCode::kUnauthenticated);
  const auto unknown = gate.AuthenticateToken("");
  EXPECT_EQ(
      gate.Enter(Caller("somebody", Caller::Clock::time_point::max(), CallKind::kOther, unknown)).code(),
      StatusCode::kUnauthenticated);
  const auto known = std::make_shared<const Principal>(Principal{.name = "named"});
  EXPECT_TRUE(gate.Enter(Caller("somebody", Caller::Clock::time_point::max(), CallKind::kOther, known)).ok());
  EXPECT_EQ(gate.inside(), 3u);
}

TEST(Gate, AsksNoCallerWithoutPrincipals) {
  const auto access = AccessControl::Make({});
  ASSERT_TRUE(access.ok());
  const AccessControl* const open = access->get();
  for (const AccessControl* const asks : {static_cast<const AccessControl*>(nullptr), open}) {
    Gate gate(asks);
    EXPECT_FALSE(gate.asks_who());
    EXPECT_EQ(gate.Enter(Caller("somebody")).code(), StatusCode::kUnavailable) << "it is closed yet";
    gate.Open();
    EXPECT_TRUE(gate.Enter(Caller("somebody")).ok());
    EXPECT_EQ(gate.AuthenticateToken("whatever"), nullptr);
  }
}

}  // namespace
}  // namespace slotwise
