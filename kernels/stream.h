// A Stream is an order of work on a device. Numbers are arrays in device memory, in the types in which they
// travel.
//
// Thread-safety: a stream belongs to its device, and to one thread at a time.
#ifndef SLOTWISE_KERNELS_STREAM_H_
#define SLOTWISE_KERNELS_STREAM_H_

#include <cstddef>
#include <cstdint>

#include "slotwise/data_type.h"

namespace slotwise {

// An array in device memory whose numbers are of the type in which they travel, between ranks or to a client;
// floats are float32.
struct Numbers {
  Numbers(float* floats) : data(floats) {}  // NOLINT(google-explicit-constructor)
  Numbers(void* numbers, DataType of_type) : data(numbers), type(of_type) {}
  void* data;
  DataType type = DataType::kFloat32;
};

// An array like Numbers that is only read.
struct ConstNumbers {
  ConstNumbers(const float* floats) : data(floats) {}  // NOLINT(google-explicit-constructor)
  // NOLINTNEXTLINE(google-explicit-constructor)
  ConstNumbers(const Numbers& numbers) : data(numbers.data), type(numbers.type) {}
  ConstNumbers(const void* numbers, DataType of_type) : data(numbers), type(of_type) {}
  const void* data;
  DataType type = DataType::kFloat32;
};

// One block of numbers from each rank, to be added up.
struct RankBlocks {
  ConstNumbers blocks;  // [ranks][size], in rank order
  int ranks = 1;
  std::size_t size = 0;       // numbers of a block
  const void* own = nullptr;  // if not null: where the block of rank `me` lies instead
  int me = 0;
};

// A stream does its work in the order in which it was asked. Streams run beside each other, unless OrderAfter
// orders them. On the CPU a call's work is done when the call returns.
// Thread-safety: same as the device. The device outlives its streams; a stream's destructor waits for its
// work.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Orders all work that is asked of this stream from now on after all that was asked of `other`, of the same
  // device.
  virtual void OrderAfter(Stream& other) = 0;

  // Copies between any of this device's memory and the host's. Does not wait if the host memory came from the
  // device's AllocateHost; that memory stays in use until Wait. `to` may be `from`.
  virtual void Copy(void* to, const void* from, std::size_t bytes) = 0;
  // Writes numbers [0, size) of `from` to `to`, each rounded once if the type of `to` has fewer bits. One of
  // the types is float32. Both arrays lie in the memory of the stream's device, and do not overlap.
  // Throws std::invalid_argument for two types of 16 bits.
  virtual void Convert(ConstNumbers from, std::size_t size, Numbers to) = 0;
  // Writes sum[i] = Σ over the ranks of number i of their blocks, added in float32 from +0 in rank order, in
  // one pass over memory. All arrays lie in the memory of the stream's device; `sum` overlaps no block.
  // Throws std::runtime_error.
  virtual void SumOverRanks(const RankBlocks& blocks, float* sum) = 0;
  // Writes to[i] = from[i] + add for i in [0, count). Both arrays lie in the memory of the stream's device,
  // and do not overlap.
  virtual void AddToEach(std::uint32_t* to, const std::uint32_t* from, std::size_t count,
                         std::uint32_t add) = 0;
  // Returns when all that was asked of this stream is done.
  virtual void Wait() = 0;
  // Returns whether Wait would return at once.
  virtual bool IsDone() = 0;

  // Returns a cudaStream_t, for libraries that work on the device too; null on the CPU.
  virtual void* NativeHandle() const = 0;

 protected:
  Stream() = default;
};

// Does what Stream::SumOverRanks does to arrays in host memory, on the calling thread, with the same bytes.
void SumOverRanksOnHost(const RankBlocks& blocks, float* sum);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_STREAM_H_
