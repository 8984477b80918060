// Makes checked requests from a frame of the data transport; their arrays stay in the frame's body.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DATA_DATA_CALL_H_
#define SLOTWISE_SERVER_DATA_DATA_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/engine/caller.h"
#include "server/engine/operations/push.h"
#include "server/intake/check.h"
#include "server/intake/embedding_calls.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise {

// Returns why a head must not be parsed; empty if it may be. Parsed, it takes about kParsed times its bytes
// at most.
std::string HeadObjection(std::span<const std::byte> head);
inline constexpr std::uint64_t kParsed = 16;

// Returns why a call with a body of `body_bytes` bytes breaks the protocol; empty if it does not.
// `on_device`: the body lies in device memory.
std::string Objection(const v1::DataCall& call, std::uint64_t body_bytes, bool on_device);

// Make requests from the call's lookups or pushes. Errors are those of check.h, with the message's place in a
// call of many. REQUIRES: Objection is empty.
Result<std::vector<CheckedLookup>> CheckLookups(const v1::DataCall& call,
                                                const std::shared_ptr<std::byte[]>& body,
                                                const FindTable& find_table);
Result<std::vector<PushRequest>> CheckPushes(const v1::DataCall& call,
                                             const std::shared_ptr<std::byte[]>& body,
                                             const FindTable& find_table);

// Returns how many bytes lookups' values take in a reply's body.
std::uint64_t BytesOfValues(const std::vector<CheckedLookup>& lookups);

// Places the lookups' values in `values`, device or host memory that `owner` keeps, in the layout of a
// reply's body. Returns false if they do not fit: they then go to the engine's own memory.
bool PlaceValues(std::span<std::byte> values, const std::shared_ptr<void>& owner, bool on_device,
                 std::vector<CheckedLookup>& lookups);

// Returns `answers`, but an error in place of lookups' rows once the caller's deadline has passed, because
// the client no longer takes them. The outcomes of pushes are still sent, in few bytes.
Result<EmbeddingAnswers> WithoutLateRows(const Caller& caller, Result<EmbeddingAnswers> answers);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DATA_CALL_H_
