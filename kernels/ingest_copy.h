// IngestCopy: brings arrays out of memory that somebody else may write at any moment into the device's own,
// and says what lies there then.
//
// An array is read once. What is copied, hashed and checked are the words that were read, so it does not
// matter what its owner writes meanwhile.
// Thread-safety: an IngestCopy belongs to one thread at a time, beside all others that use the device. Memory
// that it has given may be let go of by any thread, and outlives it.
// Errors: std::bad_alloc for want of memory; std::runtime_error: the device is broken.
#ifndef SLOTWISE_KERNELS_INGEST_COPY_H_
#define SLOTWISE_KERNELS_INGEST_COPY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "slotwise/data_type.h"

namespace slotwise {

// What is added to an array's pair j of words, times j + 1, before the words are multiplied: 2^64 over the
// golden ratio, odd (docs/semantics.md, "Bodies of steps").
inline constexpr std::uint64_t kPairPlace = 0x9E37'79B9'7F4A'7C15;

// An array's memory begins at a multiple of kAlign and is padded to one, as it is in a body of the data
// transport.
struct ArrivingArray {
  static constexpr std::size_t kAlign = 64;
  enum class Kind : std::uint8_t {
    kKeys,         // 64-bit words
    kOffsets,      // 32-bit words that rise from 0 to `last`
    kWideOffsets,  // the same, of 64 bits, which become 32; what does not fit becomes the largest number
    kUnitOffsets,  // nothing is read: 0, 1, ..., size - 1 are written
    kNumbers,      // finite numbers of `type`
  };
  Kind kind = Kind::kKeys;
  DataType type = DataType::kFloat32;
  bool one_key_a_bag = false;  // of offsets: offset i is to be i
  const void* from = nullptr;
  void* to = nullptr;      // device memory; the padding becomes zeros
  std::uint64_t size = 0;  // elements
  std::uint64_t last = 0;  // of offsets
};

// What was found of an array.
struct ArrivedArray {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  // The sum that the hash of the array is made of (docs/semantics.md), of its 32-bit words, numbers widened.
  std::uint64_t pairs = 0;
  std::uint64_t words = 0;  // how many those are
  // The first number that is not finite, or some offset that is not as it should be; or none.
  std::uint64_t wrong = kNone;
};

class IngestCopy {
 public:
  virtual ~IngestCopy() = default;
  IngestCopy(const IngestCopy&) = delete;
  IngestCopy& operator=(const IngestCopy&) = delete;

  // Returns device memory for so many bytes, aligned to ArrivingArray::kAlign.
  virtual std::shared_ptr<std::byte[]> Take(std::size_t bytes) = 0;
  // Copies arrays, and says what each of them holds. Waits. REQUIRES: found.size() = arrays.size().
  virtual void Copy(std::span<const ArrivingArray> arrays, std::span<ArrivedArray> found) = 0;
  // Copies device memory to the host's, and waits.
  virtual void Download(void* to, const void* from, std::size_t bytes) = 0;

 protected:
  IngestCopy() = default;
};

// Makes arrivals in the host's memory, which use no device.
std::unique_ptr<IngestCopy> MakeCpuIngestCopy();

// Device memory that another process of the host can map, by a descriptor (CUDA's virtual-memory API). What
// is mapped stays as long as somebody has it.
// Thread-safety: any thread.
class DeviceSharedBuffer {
 public:
  virtual ~DeviceSharedBuffer() = default;
  DeviceSharedBuffer(const DeviceSharedBuffer&) = delete;
  DeviceSharedBuffer& operator=(const DeviceSharedBuffer&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }  // device memory
  int descriptor() const { return descriptor_; }

 protected:
  DeviceSharedBuffer() = default;
  std::span<std::byte> bytes_;
  int descriptor_ = -1;  // which is closed with the shared buffer
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_INGEST_COPY_H_
