// ReadBeside: a table's rows are read from files on a thread of their own while those that were read before
// are loaded into the device, so that disk and device work at the same time.
//
// Thread-safety: the caller's thread alone calls `use`.
#ifndef SLOTWISE_SERVER_ENGINE_READ_BESIDE_H_
#define SLOTWISE_SERVER_ENGINE_READ_BESIDE_H_

#include <functional>

#include "server/durability/checkpoint_reader.h"
#include "server/durability/threads.h"
#include "slotwise/status.h"

namespace slotwise {

// Calls `read` on another thread, with a sink, and hands over all that the sink takes to `use`, in its order.
// `read` is at most two calls of the sink ahead, and gets other arrays for those of rows. Returns when `read`
// has returned: the first error of `use`, and else what `read` returned. After an error of `use` the sink's
// calls return CANCELLED. RESOURCE_EXHAUSTED if the system gives no more threads. Throws std::bad_alloc, for
// `read` too, and what `use` throws.
Status ReadBeside(Threads& threads, const std::function<Status(const RowSink&)>& read, const RowSink& use);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_READ_BESIDE_H_
