// Submits the checked lookups or pushes of a call of any transport, and joins their answers.
//
// The engine takes in all messages of a call or none, and the call is answered once: if requests are refused,
// the answer is the first one's refusal, with its place in the message. A refusal of the whole call, or one
// whose reason is a table of the step that is not in this call, has no place. After a push of the call is
// refused, another push of the call may wait for parts that will never come: so the first refusal of a push
// that a retry would repeat is the answer at once.
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
  std::uint64_t lost_from = 0;  // the first lost one of the acknowledged steps (Starts::LostFrom)
};
struct PushAnswer {
  AppliedStep applied;
  std::uint64_t lost_from = 0;  // as in LookupAnswer
};
// The answers to a call's requests, in their order.
using EmbeddingAnswers = std::vector<std::variant<LookupAnswer, PushAnswer>>;
using AnswerCall = std::function<void(Result<EmbeddingAnswers>)>;

// `many`: the call has a list of messages, be there one or none. REQUIRES: the caller is not the server.
void SubmitLookups(Engine& engine, const Caller& caller, std::vector<CheckedLookup> lookups, bool many,
                   AnswerCall answer);
// INVALID_ARGUMENT: two pushes are the same part of the same step and have different bodies, or a step has
// one table at two places.
void SubmitPushes(Engine& engine, const Caller& caller, std::vector<PushRequest> pushes, bool many,
                  AnswerCall answer);

// Return the messages that answer a lookup, without the values, and a push.
v1::LookupReply MessageOf(const LookupAnswer& answer, std::uint64_t instance);
v1::PushReply MessageOf(const PushAnswer& answer, std::uint64_t instance);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_EMBEDDING_CALLS_H_
