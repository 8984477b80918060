// Strong names for the integers that travel through every room, so that a row can never be passed for a key.
//
// All are trivially copyable and have the layout of the integer underneath, so arrays of them may be read from and
// written to the wire as they are (little-endian hosts only, which `static_assert` below checks).
#ifndef SLOTWISE_TYPES_H_
#define SLOTWISE_TYPES_H_

#include <bit>
#include <cstdint>
#include <type_traits>

namespace slotwise {

static_assert(std::endian::native == std::endian::little,
              "Slotwise puts arrays on the wire as they lie in memory");

// An embedding's identity: any 64-bit value is legal, 0 and the largest included.
enum class Key : std::uint64_t {};

// A row's place in one rank's slice of one table. Rows are handed out 0, 1, 2, ... and never move.
enum class RowIndex : std::uint32_t {};

// What a lookup says of a key that has no row.
inline constexpr RowIndex kNoRow{0xFFFF'FFFFu};

// The most rows that one rank can hold of one table.
inline constexpr std::uint64_t kMaxRowsPerShard = 0xFFFF'FFFEu;

// A table's number: the same on every rank, never used twice while a server lives.
enum class TableId : std::uint32_t {};

// A process of the server: 0 .. ranks - 1. One rank drives one device.
enum class Rank : std::int32_t {};

// The integer inside a strong type: `Value(key)`.
template <class Strong>
  requires std::is_enum_v<Strong>
constexpr auto Value(Strong strong) noexcept {
  return static_cast<std::underlying_type_t<Strong>>(strong);
}

}  // namespace slotwise

#endif  // SLOTWISE_TYPES_H_
