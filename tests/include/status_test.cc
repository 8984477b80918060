// A Status has the reason of a failure, and a Result has a value or a Status.
#include "slotwise/status.h"

#include <memory>

#include "gtest/gtest.h"

namespace slotwise {
namespace {

TEST(StatusOf, NothingIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), StatusCode::kOk);
  EXPECT_EQ(Status(), Status());
}

TEST(StatusOf, EachKindHasItsCodeAndKeepsItsMessage) {
  EXPECT_EQ(InvalidArgument("a"), Status(StatusCode::kInvalidArgument, "a"));
  EXPECT_EQ(NotFound("b"), Status(StatusCode::kNotFound, "b"));
  EXPECT_EQ(AlreadyExists("c"), Status(StatusCode::kAlreadyExists, "c"));
  EXPECT_EQ(FailedPrecondition("d"), Status(StatusCode::kFailedPrecondition, "d"));
  EXPECT_EQ(ResourceExhausted("e"), Status(StatusCode::kResourceExhausted, "e"));
  EXPECT_EQ(DeadlineExceeded("f"), Status(StatusCode::kDeadlineExceeded, "f"));
  EXPECT_EQ(Unavailable("g"), Status(StatusCode::kUnavailable, "g"));
  EXPECT_FALSE(Unavailable("g").ok());
  EXPECT_NE(Unavailable("g"), Unavailable("h"));
}

TEST(StatusOf, EachCodeIsWrittenAsGrpcWritesIt) {
  EXPECT_EQ(ToString(StatusCode::kOk), "OK");
  EXPECT_EQ(ToString(StatusCode::kInvalidArgument), "INVALID_ARGUMENT");
  EXPECT_EQ(ToString(StatusCode::kNotFound), "NOT_FOUND");
  EXPECT_EQ(ToString(StatusCode::kAlreadyExists), "ALREADY_EXISTS");
  EXPECT_EQ(ToString(StatusCode::kFailedPrecondition), "FAILED_PRECONDITION");
  EXPECT_EQ(ToString(StatusCode::kResourceExhausted), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(ToString(StatusCode::kDeadlineExceeded), "DEADLINE_EXCEEDED");
  EXPECT_EQ(ToString(StatusCode::kUnavailable), "UNAVAILABLE");
  EXPECT_EQ(ToString(StatusCode::kInternal), "INTERNAL");
}

TEST(ResultOf, AValueIsOkAndGivesIt) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  EXPECT_EQ(**result, 5);
  const std::unique_ptr<int> moved = std::move(*result);
  EXPECT_EQ(*moved, 5);
}

TEST(ResultOf, AStatusKeepsIt) {
  const Result<std::string> result(NotFound("no such table"));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status(), NotFound("no such table"));
}

}  // namespace
}  // namespace slotwise
