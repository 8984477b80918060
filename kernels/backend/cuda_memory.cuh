// This header has the CUDA backend's queue, its scratch (stream-ordered), and values on their way to the
// host.
#ifndef SLOTWISE_KERNELS_BACKEND_CUDA_MEMORY_CUH_
#define SLOTWISE_KERNELS_BACKEND_CUDA_MEMORY_CUH_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/backend/cuda_check.cuh"
#include "slotwise/sizing.h"

namespace slotwise {

// Stream-ordered memory of one device, freed in the order of the stream on which it was taken.
class CudaMemory {
 public:
  CudaMemory() = default;
  // Throws std::bad_alloc.
  CudaMemory(cudaStream_t stream, std::size_t bytes) : stream_(stream), bytes_(bytes) {
    SLOTWISE_CUDA_TRY(cudaMallocAsync(&data_, std::max<std::size_t>(bytes, 1), stream));
  }
  ~CudaMemory() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  CudaMemory(CudaMemory&& other) noexcept { Swap(other); }
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    Swap(other);
    return *this;
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void Swap(CudaMemory& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  cudaStream_t stream_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// One stream, the scratch that CUB's algorithms ask for, and places for single values on their way to the
// host.
class CudaQueue {
 public:
  // Makes a queue on the current device, whose pool of stream-ordered memory keeps freed memory for later.
  explicit CudaQueue(int priority = 0) {
    int device = 0;
    std::uint64_t keep = UINT64_MAX;
    SLOTWISE_CUDA_TRY(cudaGetDevice(&device));
    SLOTWISE_CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool_, device));
    SLOTWISE_CUDA_TRY(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
    SLOTWISE_CUDA_TRY(cudaHostAlloc(&pinned_, kPinnedBytes, cudaHostAllocDefault));
    SLOTWISE_CUDA_TRY(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority));
    SLOTWISE_CUDA_TRY(cudaEventCreateWithFlags(&so_far_, cudaEventDisableTiming));
    counter_ = CudaMemory(stream_, sizeof(std::uint32_t));
    SLOTWISE_CUDA_TRY(cudaMemsetAsync(counter_.data(), 0, sizeof(std::uint32_t), stream_));
  }
  ~CudaQueue() {
    temporary_ = CudaMemory();
    counter_ = CudaMemory();
    cudaStreamSynchronize(stream_);
    cudaEventDestroy(so_far_);
    cudaStreamDestroy(stream_);
    cudaFreeHost(pinned_);
    for (void* chunk : slot_chunks_) cudaFreeHost(chunk);
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  cudaStream_t stream() const { return stream_; }
  // Returns kPinnedBytes of the host's memory, to which kernels may write.
  void* pinned() const { return pinned_; }
  // Returns a counter that is 0; each user leaves it at 0.
  std::uint32_t* counter() const { return static_cast<std::uint32_t*>(counter_.data()); }
  void Wait() {
    SLOTWISE_CUDA_TRY(cudaStreamSynchronize(stream_));
    answered_ = asked_;
  }
  // Orders all work that is asked of this queue from now on after all that was asked of `before`.
  void OrderAfter(CudaQueue& before) {
    if (&before == this) return;
    SLOTWISE_CUDA_TRY(cudaEventRecord(before.so_far_, before.stream_));
    SLOTWISE_CUDA_TRY(cudaStreamWaitEvent(stream_, before.so_far_, 0));
  }

  // Returns kPinnedBytes of the host's memory for one answer, to which kernels may write, until GiveSlot.
  // Work that still writes to a slot that was given back comes before the work of the slot's next user.
  // Throws std::bad_alloc.
  void* TakeSlot() {
    if (free_slots_.empty()) AddSlots();
    void* const slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  void GiveSlot(void* slot) noexcept { free_slots_.push_back(slot); }

  // Returns the number of the answer whose work is asked for next.
  std::uint64_t NumberOfAnswer() { return ++asked_; }
  // Waits if no call has waited for the queue since the answer of that number was asked for.
  void WaitForAnswer(std::uint64_t number) {
    if (number > answered_) Wait();
  }

  // Returns the free bytes, less a sixteenth of the device's memory. Memory that the pool keeps is free too.
  std::size_t MemoryForTables() const {
    std::size_t free = 0;
    std::size_t total = 0;
    std::uint64_t kept = 0;
    std::uint64_t used = 0;
    SLOTWISE_CUDA_TRY(cudaMemGetInfo(&free, &total));
    SLOTWISE_CUDA_TRY(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &kept));
    SLOTWISE_CUDA_TRY(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used));
    free += kept - used;
    return free - std::min(free, total / sizing::kKeptFromTables);
  }

  // Gives the memory that the pool keeps for later back to the device. Waits.
  void ReturnUnusedMemory() {
    Wait();
    SLOTWISE_CUDA_TRY(cudaMemPoolTrimTo(pool_, 0));
  }

  // Returns at least `bytes` bytes, until the next call.
  void* Temporary(std::size_t bytes) {
    if (bytes > temporary_.bytes()) {
      temporary_ = CudaMemory();
      temporary_ = CudaMemory(stream_, bytes);
    }
    return temporary_.data();
  }

  static constexpr std::size_t kPinnedBytes = 64;

 private:
  static constexpr std::size_t kSlotsOfChunk = 256;

  void AddSlots() {
    free_slots_.reserve((slot_chunks_.size() + 1) * kSlotsOfChunk);  // so that GiveSlot never allocates
    slot_chunks_.reserve(slot_chunks_.size() + 1);
    void* chunk = nullptr;
    SLOTWISE_CUDA_TRY(cudaHostAlloc(&chunk, kSlotsOfChunk * kPinnedBytes, cudaHostAllocDefault));
    slot_chunks_.push_back(chunk);
    for (std::size_t i = 0; i < kSlotsOfChunk; ++i) {
      free_slots_.push_back(static_cast<std::byte*>(chunk) + i * kPinnedBytes);
    }
  }

  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t so_far_ = nullptr;
  void* pinned_ = nullptr;
  CudaMemory temporary_, counter_;
  std::vector<void*> slot_chunks_, free_slots_;
  std::uint64_t asked_ = 0;     // the number of the last answer
  std::uint64_t answered_ = 0;  // answers up to this one have come
};

// One value on its way to the host.
template <class T>
class CudaAnswer {
 public:
  static_assert(sizeof(T) <= CudaQueue::kPinnedBytes && std::is_trivially_copyable_v<T>);

  CudaAnswer() = default;
  ~CudaAnswer() {
    if (slot_ != nullptr) queue_->GiveSlot(slot_);
  }
  CudaAnswer(const CudaAnswer&) = delete;
  CudaAnswer& operator=(const CudaAnswer&) = delete;

  // Returns the place that the queue's next work writes the value to. REQUIRES: always the same queue, which
  // outlives the answer. Throws std::bad_alloc the first time.
  T* Begin(CudaQueue& queue) {
    if (slot_ == nullptr) {
      slot_ = queue.TakeSlot();
      queue_ = &queue;
    }
    number_ = queue.NumberOfAnswer();
    return static_cast<T*>(slot_);
  }
  // REQUIRES: Begin, and work that writes the value.
  T Get(CudaQueue& queue) const {
    queue.WaitForAnswer(number_);
    return *static_cast<const T*>(slot_);
  }

 private:
  CudaQueue* queue_ = nullptr;
  void* slot_ = nullptr;
  std::uint64_t number_ = 0;
};

// Values on their way to pinned memory of the host, and the event that tells that they have arrived.
class CudaHostCopy {
 public:
  CudaHostCopy() { SLOTWISE_CUDA_TRY(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming)); }
  ~CudaHostCopy() {
    cudaEventSynchronize(arrived_);
    cudaEventDestroy(arrived_);
    cudaFreeHost(values_);
  }
  CudaHostCopy(const CudaHostCopy&) = delete;
  CudaHostCopy& operator=(const CudaHostCopy&) = delete;

  void Start(CudaQueue& queue, const std::uint32_t* from, std::size_t n) {
    if (n > capacity_) {
      Wait();
      cudaFreeHost(std::exchange(values_, nullptr));
      capacity_ = 0;
      SLOTWISE_CUDA_TRY(cudaHostAlloc(&values_, n * sizeof(std::uint32_t), cudaHostAllocDefault));
      capacity_ = n;
    }
    size_ = n;
    SLOTWISE_CUDA_TRY(
        cudaMemcpyAsync(values_, from, n * sizeof(std::uint32_t), cudaMemcpyDeviceToHost, queue.stream()));
    SLOTWISE_CUDA_TRY(cudaEventRecord(arrived_, queue.stream()));
  }
  bool IsDone() const { return IsReady(cudaEventQuery(arrived_)); }
  std::span<const std::uint32_t> Wait() const {
    SLOTWISE_CUDA_TRY(cudaEventSynchronize(arrived_));
    return {static_cast<const std::uint32_t*>(values_), size_};
  }

 private:
  cudaEvent_t arrived_ = nullptr;
  void* values_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

template <class T>
class CudaScratch {
 public:
  T* Reserve(CudaQueue& queue, std::size_t n) {
    if (n > size_ || memory_.data() == nullptr) {
      const std::size_t ahead = size_ + size_ / 2;
      memory_ = CudaMemory();
      size_ = 0;
      try {
        Take(queue, std::max(n, ahead));
      } catch (const std::bad_alloc&) {
        if (ahead <= n) throw;
        Take(queue, n);
      }
    }
    return data();
  }
  T* data() { return static_cast<T*>(memory_.data()); }
  // Returns how many elements there is memory for.
  std::size_t size() const { return size_; }

 private:
  void Take(CudaQueue& queue, std::size_t n) {
    memory_ = CudaMemory(queue.stream(), n * sizeof(T));
    size_ = n;
  }

  CudaMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CUDA_MEMORY_CUH_
