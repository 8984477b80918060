// Fuzzes .npy files as slotwise-ctl reads them.
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <string>

#include "client/ctl/npy.h"
#include "tests/fuzz/fuzz.h"

namespace slotwise::fuzz {
namespace {

// A file in memory, with a name.
class File {
 public:
  explicit File(std::string_view bytes) : descriptor_(memfd_create("npy", 0)) {
    Require(descriptor_ >= 0, "that the system gives a file");
    Require(write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "that the file is written");
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// Returns the bytes of the array that a shape says, or nothing if 64 bits do not count them.
std::optional<std::uint64_t> BytesOf(const NpyShape& shape, std::uint64_t element) {
  std::uint64_t bytes = element;
  for (const std::uint64_t factor : {shape.rows, shape.width.value_or(1)}) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) return std::nullopt;
  }
  return bytes;
}

void RunAs(std::string_view type, bool matrix, std::string_view bytes) {
  const File file(bytes);
  auto reader = ctl::NpyReader::Open(file.path(), type, matrix);
  if (!reader.ok()) return;
  const NpyShape shape = reader->shape();
  Require(shape.width.has_value() == matrix, "that the array has as many dimensions as asked for");
  const auto size = BytesOf(shape, type == "<u8" ? 8 : 4);
  Require(size.has_value() && *size <= bytes.size(), "that the array has as many bytes as the file");
  std::string array(*size, '\0');
  Require(reader->Read(std::as_writable_bytes(std::span(array))).ok(), "that the array is there");

  const File again(NpyHeader(type, shape) + array);
  auto second = ctl::NpyReader::Open(again.path(), type, matrix);
  Require(second.ok() && second->shape() == shape, "that it is taken when it is written again");
}

}  // namespace

void Run(std::string_view bytes) {
  RunAs("<u8", false, bytes);
  RunAs("<f4", true, bytes);
}

}  // namespace slotwise::fuzz
