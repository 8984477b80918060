// DeviceAccess works on memory of the device of a server's rank, in this process: a GPU's memory, by CUDA's
// driver library, which is found at run time; or the host's, if that is the device's memory.
// Thread-safety: any thread.
// Errors: INTERNAL, with the driver's number.
#ifndef SLOTWISE_CLIENT_CPP_DEVICE_ACCESS_H_
#define SLOTWISE_CLIENT_CPP_DEVICE_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slotwise/status.h"
#include "wire/busy_polling.h"

namespace slotwise::client {

// A point in a stream's order. It has passed once all work that was enqueued before it is done.
class StreamPoint {
 public:
  virtual ~StreamPoint() = default;
  virtual bool Passed() = 0;
  virtual Status Wait() = 0;
};

class DeviceAccess {
 public:
  // Returns access to the device that RankInfo.gpu names; the same object each time. FAILED_PRECONDITION:
  // this process has no such device.
  static Result<std::shared_ptr<DeviceAccess>> Find(const std::string& gpu);

  virtual ~DeviceAccess() = default;

  // Maps memory from a server and takes over the descriptor. The memory is unmapped with its last owner.
  virtual Result<std::shared_ptr<std::byte[]>> Map(int descriptor, std::uint64_t bytes) = 0;
  // Marks the present end of a stream: a CUstream, or null for the default stream.
  virtual Result<std::shared_ptr<StreamPoint>> Mark(void* stream) = 0;
  // Enqueues copies of pieces of the device's memory on a stream, each to the next multiple of kArrayAlign
  // from `to` on. Returns the point at which they are done. Later work on the stream may overwrite the
  // pieces.
  using Pieces = std::vector<std::span<const std::byte>>;
  virtual Result<std::shared_ptr<StreamPoint>> CopyIn(void* stream, std::byte* to, const Pieces& pieces) = 0;
};

// Calls `then` with the result of StreamPoint::Wait once the point has passed. Does so at once if the point
// has passed; waits in this thread if there are no spare processors; else polls in the loop's thread.
void WhenPassed(BusyPolling& loop, std::shared_ptr<StreamPoint> point, std::function<void(Status)> then);

// Implements DeviceAccess::Find for a GPU (cuda_access.cc).
Result<std::shared_ptr<DeviceAccess>> FindCudaDevice(const std::string& uuid);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DEVICE_ACCESS_H_
