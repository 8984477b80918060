// Logs lookups and pushes one by one, at the level "debug".
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_INTAKE_CALL_LOG_H_
#define SLOTWISE_SERVER_INTAKE_CALL_LOG_H_

#include "server/engine/caller.h"

namespace slotwise {

// Logs a lookup or push that is over: who called, with the trace, what became of the call, and how long it
// took. Does little where the level is another.
void LogCall(const Caller& caller, const EndedCall& call);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_CALL_LOG_H_
