// A call of the data transport, from its frame to checked requests, whose arrays stay in the frame's body.
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

// Returns why a head is none that is to be parsed; empty if it is. Parsed, it takes kParsed times its bytes
// at most, and a little.
std::string HeadObjection(std::span<const std::byte> head);
inline constexpr std::uint64_t kParsed = 16;

// Returns why a call with a body of so many bytes, on a device or not, is none of this protocol; empty if it
// is one.
std::string Objection(const v1::DataCall& call, std::uint64_t body_bytes, bool on_device);

// Make requests of the call's lookups, or pushes. REQUIRES: there is no objection to the call and its body.
// Errors as check.h's, with the message's place if the call is of many.
Result<std::vector<CheckedLookup>> CheckLookups(const v1::DataCall& call,
                                                const std::shared_ptr<std::byte[]>& body,
                                                const FindTable& find_table);
Result<std::vector<PushRequest>> CheckPushes(const v1::DataCall& call,
                                             const std::shared_ptr<std::byte[]>& body,
                                             const FindTable& find_table);

// Returns how many bytes lookups' values take in a reply's body.
std::uint64_t BytesOfValues(const std::vector<CheckedLookup>& lookups);

// Says where lookups' values go, as in a reply's body: `values`, of the device's memory or the host's, which
// `owner` keeps. Returns whether they fit there: if not, they go to memory of the engine's.
bool PlaceValues(std::span<std::byte> values, const std::shared_ptr<void>& owner, bool on_device,
                 std::vector<CheckedLookup>& lookups);

// Returns what a caller is to hear: answers, but no rows of lookups once its deadline has passed, because
// the client does not take them. What became of its steps takes few bytes.
Result<EmbeddingAnswers> WithoutLateRows(const Caller& caller, Result<EmbeddingAnswers> answers);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DATA_CALL_H_
