#include "server/rpc/grpc_status.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/intake/quoted.h"
#include "wire/error_details.h"

namespace slotwise {
namespace {

TEST(GrpcStatus, KeepsTheCodeByNameAndTheMessage) {
  const std::vector<std::pair<StatusCode, grpc::StatusCode>> codes{
      {StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
      {StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
      {StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
      {StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
      {StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
      {StatusCode::kInternal, grpc::StatusCode::INTERNAL},
  };
  for (const auto& [ours, grpcs] : codes) {
    const grpc::Status status = ToGrpc(Status(ours, "why"));
    EXPECT_EQ(status.error_code(), grpcs) << ToString(ours);
    EXPECT_EQ(status.error_message(), "why");
    EXPECT_EQ(ReasonIn(status.error_details()), DefaultReason(ours));
  }
  EXPECT_TRUE(ToGrpc(Status()).ok());
}

TEST(GrpcStatus, CutsMessagesThatWouldNotTravel) {
  const grpc::Status status = ToGrpc(InvalidArgument(std::string(100'000, 'x')));
  EXPECT_EQ(status.error_message().size(), 1024u);
  EXPECT_LT(status.error_details().size(), 2048u);
  const grpc::Status within = ToGrpc(InvalidArgument(std::string(1023, 'x') + "\xc3\xa4 and more"));
  EXPECT_EQ(within.error_message(), std::string(1023, 'x')) << "not within a character";
  for (const char* no_text : {"\xff", "\xc3", "\x80\x80\x80\x80\x80"}) {
    const grpc::Status odd = ToGrpc(
        ResourceExhausted("cannot write " + std::string(1100, 'x') + no_text).Because(Reason::kDiskFull));
    EXPECT_EQ(ReasonIn(odd.error_details()), Reason::kDiskFull);
    EXPECT_EQ(ReasonIn(ToGrpc(ResourceExhausted(no_text).Because(Reason::kDiskFull)).error_details()),
              Reason::kDiskFull);
  }
}

TEST(Quoted, CutsLongNamesAndShowsWhatCannotBePrinted) {
  EXPECT_EQ(Quoted("ads"), "\"ads\"");
  EXPECT_EQ(Quoted("a\nb\"\xc3\xa4"), R"("a\x0ab\x22\xc3\xa4")");
  EXPECT_EQ(Quoted(std::string(1000, 'a')), '"' + std::string(80, 'a') + "...\"");
}

}  // namespace
}  // namespace slotwise
