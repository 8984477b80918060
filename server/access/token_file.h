// Reads a file of bearer tokens of one principal: one per line, and each is accepted, so that a new token can
// be given out before the old one is withdrawn. Only the SHA-256 of a token is kept.
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

// A shorter token could be guessed; a longer one is invalid.
inline constexpr std::size_t kLeastTokenBytes = 16;
inline constexpr std::size_t kMostTokenBytes = 4096;

// SHA-256 (FIPS 180-4). INTERNAL if the library refuses.
Result<TokenDigest> DigestOf(std::string_view token);

// Compares in a time that does not depend on the first difference.
bool SameDigest(const TokenDigest& one, const TokenDigest& other);

// Reads the tokens of a file. INVALID_ARGUMENT, with the file's name and never its contents: the file cannot
// be read, has no token or more than 16, or has one of another length than above, or with characters other
// than printable ASCII without spaces.
Result<std::vector<TokenDigest>> ReadTokens(const std::string& path);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_TOKEN_FILE_H_
