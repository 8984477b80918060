// 64-bit identifiers as text.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_HEX_H_
#define SLOTWISE_SERVER_DURABILITY_HEX_H_

#include <cstdint>
#include <string>

namespace slotwise {

// Returns 16 hexadecimal digits, the letters in lower case.
std::string Hex(std::uint64_t number);

// Parses 16 hexadecimal digits with lower-case letters. Returns false if `text` is anything else.
bool ParseHex(const std::string& text, std::uint64_t& number);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_HEX_H_
