// ReadBeside: reads a table's rows from files on a second thread while the caller's thread loads earlier rows
// into the device, so that disk and device work at the same time.
//
// Thread-safety: the caller's thread alone calls `use`.
#ifndef SLOTWISE_SERVER_ENGINE_READ_BESIDE_H_
#define SLOTWISE_SERVER_ENGINE_READ_BESIDE_H_

#include <functional>

#include "server/durability/checkpoint_reader.h"
#include "server/durability/threads.h"
#include "slotwise/status.h"

namespace slotwise {

// Calls `read` on another thread with a sink, and passes everything that `read` writes to the sink on to
// `use`, in the same order. `read` runs at most two sink calls ahead, and gets other arrays in exchange for
// its arrays of rows. Returns when `read` has returned: the first error of `use`, or else the result of
// `read`. After an error of `use` the sink's calls return CANCELLED. RESOURCE_EXHAUSTED: the system gives no
// more threads. Throws std::bad_alloc, also on behalf of `read`, and the exceptions of `use`.
Status ReadBeside(Threads& threads, const std::function<Status(const RowSink&)>& read, const RowSink& use);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_READ_BESIDE_H_
