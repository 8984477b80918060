// A build without CUDA has this file in the place of shard_cuda.cu.
#include "kernels/shard.h"

namespace slotwise {

int CudaDeviceCount() { return 0; }

Result<std::unique_ptr<Device>> MakeCudaDevice(int /*ordinal*/) {
  return FailedPrecondition("this build of Slotwise has no CUDA: build the `cuda` preset");
}

}  // namespace slotwise
