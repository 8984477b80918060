// Status codes are gRPC's numbers on the wire, in every transport.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_STATUS_CODE_H_
#define SLOTWISE_WIRE_STATUS_CODE_H_

#include <cstdint>

#include "slotwise/status.h"

namespace slotwise {

constexpr std::uint32_t WireCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kCancelled:
      return 1;
    case StatusCode::kInvalidArgument:
      return 3;
    case StatusCode::kDeadlineExceeded:
      return 4;
    case StatusCode::kNotFound:
      return 5;
    case StatusCode::kAlreadyExists:
      return 6;
    case StatusCode::kPermissionDenied:
      return 7;
    case StatusCode::kResourceExhausted:
      return 8;
    case StatusCode::kFailedPrecondition:
      return 9;
    case StatusCode::kInternal:
      return 13;
    case StatusCode::kUnavailable:
      return 14;
    case StatusCode::kDataLoss:
      return 15;
    case StatusCode::kUnauthenticated:
      return 16;
  }
  return 2;  // gRPC's UNKNOWN
}

// Returns the code of a number on the wire; kInternal if a server of Slotwise never sends that number.
constexpr StatusCode FromWireCode(std::uint32_t number) {
  using enum StatusCode;
  for (const StatusCode code :
       {kOk, kCancelled, kInvalidArgument, kDeadlineExceeded, kNotFound, kAlreadyExists, kPermissionDenied,
        kResourceExhausted, kFailedPrecondition, kUnavailable, kDataLoss, kUnauthenticated}) {
    if (WireCode(code) == number) return code;
  }
  return kInternal;
}

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_STATUS_CODE_H_
