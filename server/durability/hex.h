// 64-bit numbers that stand for identity, as text.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_HEX_H_
#define SLOTWISE_SERVER_DURABILITY_HEX_H_

#include <cstdint>
#include <string>

namespace slotwise {

// Writes 16 hexadecimal digits.
std::string Hex(std::uint64_t number);

// Parses 16 hexadecimal digits, of which the letters are small. Returns whether that is what `text` is.
bool ParseHex(const std::string& text, std::uint64_t& number);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_HEX_H_
