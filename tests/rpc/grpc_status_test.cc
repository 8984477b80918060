#include "server/rpc/grpc_status.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/intake/quoted.h"

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
  }
  EXPECT_TRUE(ToGrpc(Status()).ok());
}

TEST(GrpcStatus, CutsMessagesThatWouldNotTravel) {
  EXPECT_EQ(ToGrpc(InvalidArgument(std::string(100'000, 'x'))).error_message().size(), 1024u);
}

TEST(Quoted, CutsLongNamesAndShowsWhatCannotBePrinted) {
  EXPECT_EQ(Quoted("ads"), "\"ads\"");
  EXPECT_EQ(Quoted("a\nb\"\xc3\xa4"), R"("a\x0ab\x22\xc3\xa4")");
  EXPECT_EQ(Quoted(std::string(1000, 'a')), '"' + std::string(80, 'a') + "...\"");
}

}  // namespace
}  // namespace slotwise
