// Reasons have the same numbers and names in C++ and on the wire, and travel in gRPC's details.
#include "wire/error_details.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wire/status_code.h"

namespace slotwise {
namespace {

constexpr StatusCode kCodes[] = {
    StatusCode::kInvalidArgument,    StatusCode::kNotFound,          StatusCode::kAlreadyExists,
    StatusCode::kFailedPrecondition, StatusCode::kResourceExhausted, StatusCode::kDeadlineExceeded,
    StatusCode::kUnavailable,        StatusCode::kCancelled,         StatusCode::kUnauthenticated,
    StatusCode::kPermissionDenied,   StatusCode::kDataLoss,          StatusCode::kInternal};

// Returns the bytes of an ErrorStatus that has one detail.
std::string With(const std::string& type, const std::string& value) {
  v1::ErrorStatus status;
  google::protobuf::Any& any = *status.add_details();
  any.set_type_url(type);
  any.set_value(value);
  return status.SerializeAsString();
}

std::string Info(const std::string& reason, const std::string& domain) {
  v1::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain(domain);
  return info.SerializeAsString();
}

TEST(Reasons, HaveTheNumbersAndTheNamesOfTheWire) {
  const auto& wire = *v1::Reason_descriptor();
  for (int number = 0; number < 256; ++number) {
    const auto reason = static_cast<Reason>(number);
    const auto* const named = wire.FindValueByNumber(number);
    if (number == 0 || named == nullptr) {
      EXPECT_EQ(ToString(reason), "") << number;
    } else {
      EXPECT_EQ("REASON_" + std::string(ToString(reason)), named->name());
      EXPECT_EQ(ToProto(reason), number);
      EXPECT_EQ(FromProto(static_cast<v1::Reason>(number)), reason);
    }
  }
  EXPECT_EQ(FromProto(static_cast<v1::Reason>(255)), Reason::kNone) << "a later version's";
  EXPECT_EQ(FromProto(static_cast<v1::Reason>(-1)), Reason::kNone);
}

TEST(Reasons, TravelInTheDetailsOfGrpcsStatus) {
  for (int i = 1; i < v1::Reason_descriptor()->value_count(); ++i) {
    const auto reason = static_cast<Reason>(v1::Reason_descriptor()->value(i)->number());
    const Status status = NotFound("why").Because(reason);
    const std::string details = ErrorDetails(status, status.message());
    EXPECT_EQ(ReasonIn(details), reason);
    v1::ErrorStatus read;
    ASSERT_TRUE(read.ParseFromString(details));
    EXPECT_EQ(read.code(), 5) << "as google.rpc.Status has it";
    EXPECT_EQ(read.message(), "why");
    ASSERT_EQ(read.details_size(), 1);
    EXPECT_EQ(read.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  }
}

TEST(Reasons, OthersDetailsHaveNone) {
  const std::string type = "type.googleapis.com/google.rpc.ErrorInfo";
  EXPECT_EQ(ReasonIn(With(type, Info("TABLE_FULL", "slotwise"))), Reason::kTableFull);
  EXPECT_EQ(ReasonIn(""), Reason::kNone);
  EXPECT_EQ(ReasonIn("\xff\xff"), Reason::kNone);
  EXPECT_EQ(ReasonIn(With(type, Info("TABLE_FULL", "others"))), Reason::kNone);
  EXPECT_EQ(ReasonIn(With(type, Info("NO_SUCH_REASON", "slotwise"))), Reason::kNone);
  EXPECT_EQ(ReasonIn(With(type, "\xff\xff")), Reason::kNone);
  EXPECT_EQ(ReasonIn(With("type.googleapis.com/google.rpc.RetryInfo", Info("TABLE_FULL", "slotwise"))),
            Reason::kNone);
}

TEST(Status, HasAReasonUnlessItIsOk) {
  EXPECT_EQ(Status().reason(), Reason::kNone);
  for (const StatusCode code : kCodes) {
    EXPECT_NE(Status(code, "why").reason(), Reason::kNone) << ToString(code);
    EXPECT_EQ(FromWireCode(WireCode(code)), code);
  }
  EXPECT_EQ(FromWireCode(0), StatusCode::kOk);
  EXPECT_EQ(FromWireCode(2), StatusCode::kInternal);
  EXPECT_EQ(FromWireCode(12), StatusCode::kInternal);
  EXPECT_EQ(ResourceExhausted("busy", std::chrono::milliseconds(5)).reason(), Reason::kBusy);
  const Status full = ResourceExhausted("full", std::chrono::milliseconds(5)).Because(Reason::kDiskFull);
  const Status same = full.InWords("the disk is full");
  EXPECT_EQ(same.reason(), Reason::kDiskFull);
  EXPECT_EQ(same.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(same.retry_after(), std::chrono::milliseconds(5));
  EXPECT_EQ(same.message(), "the disk is full");
}

}  // namespace
}  // namespace slotwise
