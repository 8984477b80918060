// Calls back when a stream of a device has come to a point.
// Thread-safety: a free function.
#ifndef SLOTWISE_CLIENT_CPP_WHEN_PASSED_H_
#define SLOTWISE_CLIENT_CPP_WHEN_PASSED_H_

#include <functional>
#include <memory>

#include "client/cpp/device_access.h"
#include "slotwise/status.h"
#include "wire/brisk_loop.h"

namespace slotwise::client {

// Calls `then` with what StreamPoint::Wait says: at once if the point has passed, after a wait for it if no
// processor can be spared to look for it, else from the loop's thread.
void WhenPassed(BriskLoop& loop, std::shared_ptr<StreamPoint> point, std::function<void(Status)> then);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_WHEN_PASSED_H_
