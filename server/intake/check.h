// Checks messages of the data path, of all transports, and makes engine requests from them. No code behind
// intake sees an invalid batch.
//
// Errors name the field and the value. INVALID_ARGUMENT: a value can never be right. NOT_FOUND: there is no
// such table. RESOURCE_EXHAUSTED: no protobuf message can hold the lookup's reply.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_INTAKE_CHECK_H_
#define SLOTWISE_SERVER_INTAKE_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/intake/find_table.h"
#include "server/intake/wire_array.h"
#include "slotwise/status.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/wire_reader.h"

namespace slotwise {

// A device's findings on a request's arrays in device memory: for these arrays the device does the checks and
// hashes that are done here for host memory. It has also written the offsets that a message leaves out.
struct FoundArrays {
  IngestCopy* by = nullptr;  // copies wrong values to the host, for errors
  ArrivedArray keys, offsets, weights, gradients;
  bool wide_offsets = false;  // the client sent 64-bit offsets
};

// The arrays that lookups and pushes share.
struct BatchArrays {
  explicit BatchArrays(ArrayPool* pool = nullptr) : keys{.pool = pool}, weights{.pool = pool} {}
  WireArray<Key> keys;
  WireArray<std::uint32_t> offsets;
  WireArray<float> weights;
  const FoundArrays* found = nullptr;  // null: the arrays lie in host memory
};

struct CheckedLookup {
  LookupRequest request;  // every field but `done` and `caller`
  Acknowledged acknowledged = {};
  std::uint32_t width = 0;  // elements a sample: slots · dim
};

// Check a message with the given arrays; arrays in the message itself are ignored.
Result<CheckedLookup> CheckLookup(const v1::LookupRequest& message, BatchArrays arrays,
                                  const FindTable& find_table);
// Sets every field but `done` and `caller`.
Result<PushRequest> CheckPush(const v1::PushRequest& message, BatchArrays arrays, WireNumbers gradients,
                              const FindTable& find_table);

// Decode a message from its bytes, and check it. If `arrays` is given, keys, weights and gradients are read
// from the bytes directly into its memory, where the device reads them. INVALID_ARGUMENT: the bytes are not a
// valid message.
Result<CheckedLookup> DecodeLookup(const MessageBytes& bytes, const FindTable& find_table,
                                   ArrayPool* arrays = nullptr);
Result<PushRequest> DecodePush(const MessageBytes& bytes, const FindTable& find_table,
                               ArrayPool* arrays = nullptr);

// Returns the last step that, according to the message, was acknowledged to its client.
Acknowledged AcknowledgedIn(const v1::AcknowledgedState& message);

// Returns the type that a message's `field` names.
Result<DataType> CheckDataType(v1::DataType type, std::string_view field);

// The names of a call's lists of messages, for refusals.
inline constexpr std::string_view kLookups = "lookups";
inline constexpr std::string_view kPushes = "pushes";

// Returns `why` with the message's place in front.
Status WithPlace(std::string_view field, std::size_t index, const Status& why);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_CHECK_H_
