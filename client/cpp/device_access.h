// DeviceAccess: what a client does with memory of the device that a server's rank has, in this process: a
// GPU's, by CUDA's driver, whose library is found at run time; or the host's, where that is the device's
// memory.
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

// A point in the order of the work of a stream: what was asked of the stream before it was marked.
class StreamPoint {
 public:
  virtual ~StreamPoint() = default;
  // Returns whether all of that is done.
  virtual bool Passed() = 0;
  virtual Status Wait() = 0;
};

class DeviceAccess {
 public:
  // Returns access to the device that RankInfo.gpu names; the same each time. FAILED_PRECONDITION: this
  // process has no such device.
  static Result<std::shared_ptr<DeviceAccess>> Find(const std::string& gpu);

  virtual ~DeviceAccess() = default;

  // Maps memory that came from a server, and takes the descriptor over. It is unmapped with its last owner.
  virtual Result<std::shared_ptr<std::byte[]>> Map(int descriptor, std::uint64_t bytes) = 0;
  // Marks what was asked of a stream of the device until now: a CUstream, or null for the default stream.
  virtual Result<std::shared_ptr<StreamPoint>> Mark(void* stream) = 0;
  // Asks a stream to copy pieces of the device's memory, each to the next multiple of kArrayAlign from `to`
  // on, and returns the point at which that is done. Whatever the stream is asked for later may write them.
  using Pieces = std::vector<std::span<const std::byte>>;
  virtual Result<std::shared_ptr<StreamPoint>> CopyIn(void* stream, std::byte* to, const Pieces& pieces) = 0;
};

// Calls `then`, when a stream has come to a point, with what StreamPoint::Wait says: at once if the point has
// passed, after a wait for it if no processor can be spared to look for it, else from the loop's thread.
void WhenPassed(BusyPolling& loop, std::shared_ptr<StreamPoint> point, std::function<void(Status)> then);

// DeviceAccess::Find's, of a GPU (cuda_access.cc).
Result<std::shared_ptr<DeviceAccess>> FindCudaDevice(const std::string& uuid);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DEVICE_ACCESS_H_
