// The messages that answer lookups and pushes, without a lookup's values.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_INTAKE_REPLIES_H_
#define SLOTWISE_SERVER_INTAKE_REPLIES_H_

#include <cstdint>

#include "server/intake/embedding_calls.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise {

v1::LookupReply MessageOf(const LookupAnswer& answer, std::uint64_t incarnation);
v1::PushReply MessageOf(const PushAnswer& answer, std::uint64_t incarnation);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_REPLIES_H_
