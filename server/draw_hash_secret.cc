#include "server/draw_hash_secret.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace slotwise {

Result<HashSecret> DrawHashSecret(ssize_t (*source)(void* bytes, std::size_t size, unsigned flags)) {
  std::array<std::uint64_t, 2> words{};
  std::span<std::byte> missing = std::as_writable_bytes(std::span(words));
  while (!missing.empty()) {
    const ssize_t got = source(missing.data(), missing.size(), 0);
    if (got > 0) {
      missing = missing.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      const std::string reason = got == 0 ? "it gave no bytes" : std::strerror(errno);
      return FailedPrecondition("cannot draw the secret of the hash tables by getrandom(2): " + reason);
    }
  }
  return HashSecret(words[0], words[1]);
}

}  // namespace slotwise
