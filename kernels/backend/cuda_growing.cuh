// These arrays in device memory grow in place: addresses are reserved for all elements that an array may
// have, and memory is mapped there piece by piece. To have more, an array gets a longer range of addresses,
// and the same memory is mapped there. Nothing is copied.
#ifndef SLOTWISE_KERNELS_BACKEND_CUDA_GROWING_CUH_
#define SLOTWISE_KERNELS_BACKEND_CUDA_GROWING_CUH_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/cuda_memory.cuh"
#include "slotwise/sizing.h"

namespace slotwise {

// The driver's virtual-memory functions, found through the runtime: a program that is linked against the
// driver's library does not start on a machine without a GPU.
class CudaVirtualMemory {
 public:
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_addresses;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemExportToShareableHandle) export_memory;

  // Throws std::runtime_error if the driver lacks one of them.
  static const CudaVirtualMemory& Get() {
    static const CudaVirtualMemory functions;
    return functions;
  }

  // Throws std::bad_alloc if there is no memory or no address space, std::runtime_error for any other error.
  static void Check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) throw std::bad_alloc();
    throw std::runtime_error(std::string(what) + ": the CUDA driver's error " + std::to_string(result));
  }

 private:
  CudaVirtualMemory() {
    Find("cuMemGetAllocationGranularity", granularity);
    Find("cuMemAddressReserve", reserve);
    Find("cuMemAddressFree", free_addresses);
    Find("cuMemCreate", create);
    Find("cuMemRelease", release);
    Find("cuMemMap", map);
    Find("cuMemUnmap", unmap);
    Find("cuMemSetAccess", set_access);
    Find("cuMemExportToShareableHandle", export_memory);
  }

  template <class Function>
  static void Find(const char* name, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    constexpr unsigned kCuda102 = 10020;  // which brought these functions
    SLOTWISE_CUDA_TRY(cudaGetDriverEntryPointByVersion(name, &found, kCuda102, cudaEnableDefault, &result));
#else
    SLOTWISE_CUDA_TRY(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
    if (result != cudaDriverEntryPointSuccess)
      throw std::runtime_error(std::string("this CUDA driver has no ") + name);
    function = reinterpret_cast<Function>(found);
  }
};

// A range of addresses of the current device, whose front part has memory.
class CudaAddresses {
 public:
  // Reserves `bytes` bytes, or as many as the device has if that is less. Throws std::bad_alloc.
  CudaAddresses(CudaQueue& queue, std::size_t bytes) : queue_(&queue) {
    int device = 0;
    std::size_t free = 0;
    SLOTWISE_CUDA_TRY(cudaGetDevice(&device));
    SLOTWISE_CUDA_TRY(cudaMemGetInfo(&free, &most_));
    what_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what_.location.id = device;
    Check(api_.granularity(&piece_, &what_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");
    reserved_ = AddressesFor(bytes);
    Check(api_.reserve(&begin_, reserved_, 0, 0, 0), "cuMemAddressReserve");
  }
  ~CudaAddresses() {
    cudaStreamSynchronize(queue_->stream());
    Unmap(begin_, pieces_.size());
    for (const Piece& piece : pieces_) api_.release(piece.memory);
    api_.free_addresses(begin_, reserved_);
  }
  CudaAddresses(const CudaAddresses&) = delete;
  CudaAddresses& operator=(const CudaAddresses&) = delete;

  void* begin() const { return reinterpret_cast<void*>(begin_); }
  std::size_t backed() const { return backed_; }

  // Maps memory to the first `bytes` bytes, or some more. Throws std::bad_alloc, and then nothing has
  // changed.
  void Back(std::size_t bytes) {
    if (bytes > reserved_) throw std::bad_alloc();
    if (bytes <= backed_) return;
    pieces_.reserve(pieces_.size() + 1);
    Piece piece{{}, Pieces(bytes) - backed_};
    const CUdeviceptr at = begin_ + backed_;
    Check(Create(piece), "cuMemCreate");
    const CUresult result = Map(at, piece);
    if (result != CUDA_SUCCESS) api_.release(piece.memory);
    Check(result, "cuMemMap");
    pieces_.push_back(piece);
    backed_ += piece.bytes;
  }

  // Reserves `bytes` bytes or more, as if the range had been made with so many. begin() may change, and all
  // else stays. Waits for the queue. REQUIRES: no other queue uses the range. Throws std::bad_alloc, and then
  // nothing has changed.
  void Extend(std::size_t bytes) {
    const std::size_t wanted = AddressesFor(bytes);
    if (wanted <= reserved_) return;
    SLOTWISE_CUDA_TRY(cudaStreamSynchronize(queue_->stream()));
    CUdeviceptr longer = 0;
    Check(api_.reserve(&longer, wanted, 0, 0, 0), "cuMemAddressReserve");
    CUdeviceptr at = longer;
    for (std::size_t mapped = 0; mapped < pieces_.size(); ++mapped) {
      const CUresult result = Map(at, pieces_[mapped]);
      if (result != CUDA_SUCCESS) {
        Unmap(longer, mapped);
        api_.free_addresses(longer, wanted);
      }
      Check(result, "cuMemMap");
      at += pieces_[mapped].bytes;
    }
    Unmap(begin_, pieces_.size());
    api_.free_addresses(begin_, reserved_);
    begin_ = longer;
    reserved_ = wanted;
  }

 private:
  struct Piece {
    CUmemGenericAllocationHandle memory;
    std::size_t bytes;
  };

  static void Check(CUresult result, const char* what) { CudaVirtualMemory::Check(result, what); }

  std::size_t Pieces(std::size_t bytes) const { return (bytes + piece_ - 1) / piece_ * piece_; }
  // Returns how many addresses a range for `bytes` bytes has.
  std::size_t AddressesFor(std::size_t bytes) const {
    return Pieces(std::clamp<std::size_t>(bytes, 1, most_));
  }

  // Maps a piece's memory at an address. If that fails, nothing is mapped there.
  CUresult Map(CUdeviceptr at, const Piece& piece) const {
    CUresult result = api_.map(at, piece.bytes, 0, piece.memory, 0);
    if (result != CUDA_SUCCESS) return result;
    const CUmemAccessDesc access{what_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = api_.set_access(at, piece.bytes, &access, 1);
    if (result != CUDA_SUCCESS) api_.unmap(at, piece.bytes);
    return result;
  }
  // Unmaps the first pieces, which are mapped from an address on.
  void Unmap(CUdeviceptr at, std::size_t pieces) const {
    for (std::size_t p = 0; p < pieces; ++p) {
      api_.unmap(at, pieces_[p].bytes);
      at += pieces_[p].bytes;
    }
  }

  // If memory is missing, tries again without the memory that the pool of scratch memory keeps for later.
  CUresult Create(Piece& piece) {
    const CUresult result = api_.create(&piece.memory, piece.bytes, &what_, 0);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    queue_->ReturnUnusedMemory();
    return api_.create(&piece.memory, piece.bytes, &what_, 0);
  }

  const CudaVirtualMemory& api_ = CudaVirtualMemory::Get();
  CudaQueue* queue_;
  CUmemAllocationProp what_{};
  std::size_t piece_ = 0;  // memory comes in multiples of this
  std::size_t most_ = 0;   // of the device's memory
  CUdeviceptr begin_ = 0;
  std::size_t reserved_ = 0;
  std::size_t backed_ = 0;
  std::vector<Piece> pieces_;
};

template <class T>
class CudaGrowing {
 public:
  CudaGrowing(CudaQueue& queue, std::size_t limit) : addresses_(queue, limit * sizeof(T)), limit_(limit) {}

  // Mapped memory is taken whether it is used or not.
  static std::size_t Ahead(std::size_t n) { return sizing::AheadOnGpu(n); }

  void Grow(std::size_t n) {
    if (n > limit_) throw std::bad_alloc();
    addresses_.Back(n * sizeof(T));
  }
  void Extend(CudaQueue& /*queue*/, std::size_t limit) {
    addresses_.Extend(limit * sizeof(T));
    limit_ = std::max(limit_, limit);
  }
  T* data() const { return static_cast<T*>(addresses_.begin()); }
  std::size_t size() const { return addresses_.backed() / sizeof(T); }

 private:
  CudaAddresses addresses_;
  std::size_t limit_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CUDA_GROWING_CUH_
