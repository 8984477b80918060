// Encodes asks as a call of the data transport, a head and a body, and computes the result that a server must
// find in those bytes, in plain code that shares nothing with the server.
//
// Thread-safety: free functions.
#ifndef SLOTWISE_TESTS_SIM_CALL_BYTES_H_
#define SLOTWISE_TESTS_SIM_CALL_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/schedule/request.h"
#include "server/engine/tables.h"
#include "slotwise/v1/data.pb.h"
#include "tests/sim/asks.h"

namespace slotwise::sim {

inline constexpr std::uint64_t kAlign = 64;   // alignment of arrays in a body
inline constexpr std::uint64_t kVector = 16;  // the number of bytes that a device copies at once

// Returns the hash that semantics.md defines for a push's body.
std::uint32_t HashOfBody(const Ask& push);

// Returns the head of a call of these lookups or pushes, without places. `names[i]` is the name of ask i's
// table.
v1::DataCall HeadOf(std::span<const Ask> asks, std::span<const std::string> names, bool many);

// Leaves out a message's offsets. REQUIRES: each of its bags has one key.
void LeaveOutOffsets(v1::DataCall& head, int message);
// Widens a message's offsets to 64 bits, which calls through a device's memory may use.
void WidenOffsets(v1::DataCall& head, int message);

// Returns the asks' arrays as they lie in a body.
std::vector<std::byte> BodyOf(const v1::DataCall& head, std::span<const Ask> asks);

// Returns the ask of message `message` with the arrays in `body`, and all other fields from `ask`.
Ask AskIn(const v1::DataCall& head, int message, std::span<const std::byte> body, const Ask& ask);

// Returns the status with which a server must refuse these bytes; OK: the server submits them to its engine.
// `tables[i]` is the table that message i names, or nothing if there is none.
StatusCode CodeOf(const v1::DataCall& head, std::span<const Ask> asks,
                  std::span<const std::optional<TableInfo>> tables);

// Returns a request's arrays as they would lie in a call's body, as message `message` of the head.
std::vector<std::byte> ArraysOf(const v1::DataCall& head, int message, const Request& request);
// Returns the arrays of message `message` in a body.
std::span<const std::byte> ArraysIn(const v1::DataCall& head, int message, std::span<const std::byte> body);

// The place of a lookup's values among the call's values, in bytes.
struct ValuePlace {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
};
std::vector<ValuePlace> ValuePlaces(std::span<const Ask> asks);
std::uint64_t BytesOfPlaces(std::span<const ValuePlace> places);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_CALL_BYTES_H_
