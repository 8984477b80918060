// A call of the data transport, from its asks to a head and a body, and what a server has to find in those
// bytes, in plain code that shares nothing with the server's.
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

inline constexpr std::uint64_t kAlign = 64;   // of arrays in a body
inline constexpr std::uint64_t kVector = 16;  // bytes that a device copies at once

// The hash that semantics.md gives a push's body.
std::uint32_t HashOfBody(const Ask& push);

// Returns the head of a call of these lookups, or pushes, without places. `names[i]`: the table's.
v1::DataCall HeadOf(std::span<const Ask> asks, std::span<const std::string> names, bool many);

// Leaves out the offsets of a message whose bags have one key each. REQUIRES: they have.
void LeaveOutOffsets(v1::DataCall& head, int message);
// Gives a message's offsets 64 bits each, as calls by a device's memory may have them.
void WidenOffsets(v1::DataCall& head, int message);

// Returns the asks' arrays as they lie in a body.
std::vector<std::byte> BodyOf(const v1::DataCall& head, std::span<const Ask> asks);

// Returns message `message`'s ask with the arrays that `body` has for it. `ask` has everything else.
Ask AskIn(const v1::DataCall& head, int message, std::span<const std::byte> body, const Ask& ask);

// The status by which a server has to refuse these bytes; OK: it hands them to its engine. `tables[i]`: the
// table that message i names, if there is one.
StatusCode CodeOf(const v1::DataCall& head, std::span<const Ask> asks,
                  std::span<const std::optional<TableInfo>> tables);

// Returns the arrays of a request as they would lie in the body of a call. `message`: of the head's.
std::vector<std::byte> ArraysOf(const v1::DataCall& head, int message, const Request& request);
// Returns where message `message`'s arrays lie in a body.
std::span<const std::byte> ArraysIn(const v1::DataCall& head, int message, std::span<const std::byte> body);

// Where each lookup's values lie among the call's, and how many bytes they are.
struct ValuePlace {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
};
std::vector<ValuePlace> ValuePlaces(std::span<const Ask> asks);
std::uint64_t BytesOfPlaces(std::span<const ValuePlace> places);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_CALL_BYTES_H_
