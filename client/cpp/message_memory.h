// Memory for large requests, used again and again.
//
// New memory of megabytes comes from the system page by page, and goes back to it when it is freed: on some
// hosts that costs more time than what is written there.
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
  // At most so many bytes are kept for later.
  static constexpr std::size_t kMostKept = 64 << 20;
  // Smaller messages are not worth it.
  static constexpr std::size_t kLeast = 256 << 10;

  // Returns a slice of `size` bytes, of any contents, and where to write them before anybody else has the
  // slice. REQUIRES: owned by a shared_ptr, which slices may outlive.
  std::pair<grpc::Slice, std::byte*> Take(std::size_t size);

  // Returns the bytes that wait to be used again.
  std::size_t kept() const;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  struct Held;  // a block that a slice has

  Block TakeBlock(std::size_t size);
  void Return(Block block);

  mutable std::mutex mutex_;
  std::vector<Block> free_;  // guarded by mutex_
  std::size_t kept_ = 0;     // guarded by mutex_
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_MESSAGE_MEMORY_H_
