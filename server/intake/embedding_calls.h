// Lookups and pushes of a call, from checked requests to one answer, whichever transport the call came
// through.
//
// A call of several messages is taken in by the engine whole or not at all, and answered once: if requests
// were refused, the first one's refusal is the answer, with its place in the message. A refusal of the whole
// call, or one whose reason is a table of the step that is not in this call, has no place. A push may wait
// for parts that come with no message any more once another push of the call is refused: so the first refusal
// of a push that would be refused again is the answer at once.
// Thread-safety: free functions; `answer` is called once, on the engine's thread or on the caller's.
#ifndef SLOTWISE_SERVER_INTAKE_EMBEDDING_CALLS_H_
#define SLOTWISE_SERVER_INTAKE_EMBEDDING_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/intake/check.h"
#include "slotwise/status.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise {

struct LookupAnswer {
  std::uint32_t samples = 0;
  std::uint32_t width = 0;
  PooledValues values = {};
  std::uint64_t lost_from = 0;  // of the steps that the request names as acknowledged (Starts::LostFrom)
};
struct PushAnswer {
  AppliedStep applied;
  std::uint64_t lost_from = 0;  // as a LookupAnswer's
};
// To each request of a call, in their order.
using EmbeddingAnswers = std::vector<std::variant<LookupAnswer, PushAnswer>>;
using AnswerCall = std::function<void(Result<EmbeddingAnswers>)>;

// `many`: the call is one of several messages, be there one or none. REQUIRES: the caller is not the server.
void SubmitLookups(Engine& engine, const Caller& caller, std::vector<CheckedLookup> lookups, bool many,
                   AnswerCall answer);
// INVALID_ARGUMENT: two pushes are the same part of the same step and have different bodies, or a step has
// one table at two places.
void SubmitPushes(Engine& engine, const Caller& caller, std::vector<PushRequest> pushes, bool many,
                  AnswerCall answer);

// The messages that answer a lookup, without the values, and a push.
v1::LookupReply MessageOf(const LookupAnswer& answer, std::uint64_t instance);
v1::PushReply MessageOf(const PushAnswer& answer, std::uint64_t instance);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_EMBEDDING_CALLS_H_
