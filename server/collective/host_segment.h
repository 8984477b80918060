// A HostSegment is memory that the processes of one host share, under a name that one tells the others.
//
// One process makes the segment, the others open it, and then the maker removes the name, so that no file is
// left behind: the memory is freed when its last process ends. A process on another host, or in a container
// with a /dev/shm of its own, cannot open it.
//
// Thread-safety: one thread at a time, except for the bytes, which any thread of any process may use.
// Errors: null where the system has no such memory.
#ifndef SLOTWISE_SERVER_COLLECTIVE_HOST_SEGMENT_H_
#define SLOTWISE_SERVER_COLLECTIVE_HOST_SEGMENT_H_

#include <array>
#include <cstddef>
#include <memory>

namespace slotwise {

class HostSegment {
 public:
  // A text that ends with a zero.
  using Name = std::array<char, 48>;

  // Makes `bytes` of zeros under a new name. The system reserves the memory at once, so that no process that
  // touches it later finds none.
  static std::unique_ptr<HostSegment> Make(std::size_t bytes);
  // Maps the segment that another process made.
  static std::unique_ptr<HostSegment> Open(const Name& name, std::size_t bytes);
  ~HostSegment();
  HostSegment(const HostSegment&) = delete;
  HostSegment& operator=(const HostSegment&) = delete;

  // Removes the name, so that no further process can open the segment. A process that has it keeps it.
  void RemoveName();

  const Name& name() const { return name_; }
  std::byte* data() const { return data_; }

 private:
  HostSegment(const Name& name, std::byte* data, std::size_t bytes, bool has_name)
      : name_(name), data_(data), bytes_(bytes), has_name_(has_name) {}
  static std::unique_ptr<HostSegment> Map(const Name& name, int file, std::size_t bytes, bool has_name);

  const Name name_;
  std::byte* const data_;
  const std::size_t bytes_;
  bool has_name_;  // whether the name is there, and this process removes it
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_HOST_SEGMENT_H_
