// Reuses memory for large requests.
//
// The system hands out new memory page by page, and gets it back when it is freed. On some hosts that costs
// more time than writing the message.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_MESSAGE_MEMORY_H_
#define SLOTWISE_CLIENT_CPP_MESSAGE_MEMORY_H_

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace slotwise::client {

class MessageMemory : public std::enable_shared_from_this<MessageMemory> {
 public:
  // At most so many bytes are kept for reuse.
  static constexpr std::size_t kMostKept = 64 << 20;
  // Smaller messages are allocated as usual.
  static constexpr std::size_t kLeast = 256 << 10;

  // Returns a slice of `size` bytes of any contents, and a pointer to write them by before the slice is
  // passed on. REQUIRES: a shared_ptr owns this object, because slices may outlive it.
  std::pair<grpc::Slice, std::byte*> Take(std::size_t size);

  // Returns the bytes that are kept for reuse.
  std::size_t kept() const;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  struct Held;  // a block that a slice uses

  Block TakeBlock(std::size_t size);
  void Return(Block block);

  mutable std::mutex mutex_;
  std::vector<Block> free_;  // guarded by mutex_
  std::size_t kept_ = 0;     // guarded by mutex_
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_MESSAGE_MEMORY_H_
