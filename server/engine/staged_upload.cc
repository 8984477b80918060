#include "server/engine/staged_upload.h"

#include <cstring>

namespace slotwise {

void StagedUpload::Copy(void* to, const void* from, std::size_t bytes, MemoryKind memory) {
  if (bytes == 0) return;
  if (StagedBytes(bytes, memory) == 0) return stream_.Copy(to, from, bytes);
  std::memcpy(WriteTo(to, bytes), from, bytes);
}

void* StagedUpload::WriteTo(void* to, std::size_t bytes) {
  if (device_.SharesHostMemory()) return to;
  auto* const there = static_cast<std::byte*>(to);
  if (waiting_ > 0 && there != to_ + waiting_) Flush();
  if (waiting_ == 0) {
    from_ = next_;
    to_ = there;
  }
  std::byte* const place = next_;
  next_ += bytes;
  waiting_ += bytes;
  return place;
}

void StagedUpload::Flush() {
  if (waiting_ > 0) stream_.Copy(to_, from_, waiting_);
  waiting_ = 0;
}

}  // namespace slotwise
