// Puts a refusal's reason into a gRPC status's details, and reads it (proto/slotwise/v1/errors.proto).
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_ERROR_DETAILS_H_
#define SLOTWISE_WIRE_ERROR_DETAILS_H_

#include <string>

#include "slotwise/reason.h"
#include "slotwise/status.h"
#include "slotwise/v1/errors.pb.h"

namespace slotwise {

// Returns the details of the gRPC status of a refusal with the message `message`. REQUIRES: `status` is not
// OK.
std::string ErrorDetails(const Status& status, const std::string& message);

// Returns the reason in the details of a gRPC status; kNone if they have none of Slotwise's.
Reason ReasonIn(const std::string& details);

constexpr v1::Reason ToProto(Reason reason) { return static_cast<v1::Reason>(reason); }
// Returns kNone for a reason that this version does not know.
Reason FromProto(v1::Reason reason);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_ERROR_DETAILS_H_
