#include "server/durability/checksum.h"

// The functions are compiled into this file, so that programs need no shared library for them.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace slotwise {

struct Checksum::State {
  XXH3_state_t xxh3;
};

void Checksum::Free::operator()(State* state) const { delete state; }

Checksum::Checksum() : state_(new State) { XXH3_64bits_reset(&state_->xxh3); }

void Checksum::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t Checksum::Take() {
  const std::uint64_t sum = XXH3_64bits_digest(&state_->xxh3);
  XXH3_64bits_reset(&state_->xxh3);
  return sum;
}

std::uint64_t ChecksumOf(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::uint64_t ChecksumOf(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace slotwise
