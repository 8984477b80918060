// An IngestCopy copies arrays from memory that another process may write at any moment into the device's own
// memory, and reports what the copies hold.
//
// An array is read once. The words that were read are copied, hashed and checked, so the array's owner may
// write to it meanwhile without harm.
// Thread-safety: an IngestCopy belongs to one thread at a time, while other threads may use the device.
// Memory from Take may outlive the IngestCopy, and any thread may release it.
// Errors: std::bad_alloc if there is no memory; std::runtime_error if the device is broken.
#ifndef SLOTWISE_KERNELS_INGEST_COPY_H_
#define SLOTWISE_KERNELS_INGEST_COPY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "slotwise/data_type.h"

namespace slotwise {

// The payload hash adds (j + 1) · kPairPlace to pair j of an array's words before it multiplies the words.
// The number is 2^64 over the golden ratio, and odd (docs/semantics.md, "Bodies of steps").
inline constexpr std::uint64_t kPairPlace = 0x9E37'79B9'7F4A'7C15;

// Describes an array to copy. Its memory begins at a multiple of kAlign bytes and is padded to one, as in a
// body of the data transport.
struct ArrivingArray {
  static constexpr std::size_t kAlign = 64;
  enum class Kind : std::uint8_t {
    kKeys,         // 64-bit words
    kOffsets,      // 32-bit words that rise from 0 to `last`
    kWideOffsets,  // the same of 64 bits, narrowed to 32; a number that does not fit becomes the largest
    kUnitOffsets,  // nothing is read: 0, 1, ..., size - 1 are written
    kNumbers,      // finite numbers of `type`
  };
  Kind kind = Kind::kKeys;
  DataType type = DataType::kFloat32;
  bool one_key_a_bag = false;  // for offsets: offset i must be i
  const void* from = nullptr;
  void* to = nullptr;      // device memory; the padding becomes zeros
  std::uint64_t size = 0;  // elements
  std::uint64_t last = 0;  // for offsets: the last one
};

// Reports what an array holds.
struct ArrivedArray {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  // The sum of which the array's hash is made (docs/semantics.md), over its 32-bit words, numbers widened.
  std::uint64_t pairs = 0;
  std::uint64_t words = 0;  // the number of those words
  // The index of the first number that is not finite, or of an offset that is wrong; kNone if there is none.
  std::uint64_t wrong = kNone;
};

class IngestCopy {
 public:
  virtual ~IngestCopy() = default;
  IngestCopy(const IngestCopy&) = delete;
  IngestCopy& operator=(const IngestCopy&) = delete;

  // Returns device memory for so many bytes, aligned to ArrivingArray::kAlign.
  virtual std::shared_ptr<std::byte[]> Take(std::size_t bytes) = 0;
  // Copies arrays, and reports what each of them holds. Waits. REQUIRES: found.size() = arrays.size().
  virtual void Copy(std::span<const ArrivingArray> arrays, std::span<ArrivedArray> found) = 0;
  // Copies device memory to the host's, and waits.
  virtual void Download(void* to, const void* from, std::size_t bytes) = 0;

 protected:
  IngestCopy() = default;
};

// Makes an IngestCopy that copies within the host's memory and uses no device.
std::unique_ptr<IngestCopy> MakeCpuIngestCopy();

// Device memory that another process of the host can map by a descriptor (CUDA's virtual-memory API). The
// memory stays until the last process that has it releases it.
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
  int descriptor_ = -1;  // closed with the shared buffer
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_INGEST_COPY_H_
