// A TokenFile is a file with the bearer tokens by which somebody is known: one a line, any of them is taken,
// so that a new one can be given out before the old one is withdrawn. Tokens are kept as their SHA-256 alone.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ACCESS_TOKEN_FILE_H_
#define SLOTWISE_SERVER_ACCESS_TOKEN_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

using TokenDigest = std::array<unsigned char, 32>;

// A shorter token could be guessed; a longer one is no token.
inline constexpr std::size_t kLeastTokenBytes = 16;
inline constexpr std::size_t kMostTokenBytes = 4096;

// SHA-256 (FIPS 180-4). INTERNAL if the library refuses.
Result<TokenDigest> DigestOf(std::string_view token);

// Compares in a time that does not depend on where they differ.
bool SameDigest(const TokenDigest& one, const TokenDigest& other);

// Reads the tokens of a file. INVALID_ARGUMENT, with the file's name and never with what is in it, if it
// cannot be read, has no token, more than 16, or one of other characters than printable ASCII without spaces,
// or of another length than above.
Result<std::vector<TokenDigest>> ReadTokens(const std::string& path);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_TOKEN_FILE_H_
