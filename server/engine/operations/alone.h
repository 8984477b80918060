// Helpers for the rounds of an export, in which one rank works alone.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_ALONE_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_ALONE_H_

#include <new>

#include "slotwise/status.h"

namespace slotwise {

namespace operations {

// Returns what `read` returns, or RESOURCE_EXHAUSTED if it has no memory.
template <class Read>
auto OrNoMemory(Read read, const char* message) -> Result<decltype(read())> {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(message).Because(Reason::kNoMemory);
  }
}

// Answers a caller who is gone. A rank of an export may skip its work: other ranks take no part in it.
inline Status CallerIsGone() { return Cancelled("the caller is gone"); }

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_ALONE_H_
