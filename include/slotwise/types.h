// This header gives strong types to the integers that every room uses, so that code cannot pass a row for a
// key.
//
// All types are trivially copyable and have the layout of the integer underneath, so arrays of them can be
// copied from and to the wire unchanged (on little-endian hosts only, as the `static_assert` below checks).
#ifndef SLOTWISE_TYPES_H_
#define SLOTWISE_TYPES_H_

#include <bit>
#include <cstdint>
#include <type_traits>

namespace slotwise {

static_assert(std::endian::native == std::endian::little,
              "Slotwise puts arrays on the wire as they lie in memory");

// A key identifies an embedding. Any 64-bit value is legal, including 0 and the largest.
enum class Key : std::uint64_t {};

// A row's place in one rank's shard of one table. Rows are handed out as 0, 1, 2, ... and never move.
enum class RowIndex : std::uint32_t {};

// A lookup returns kNoRow for a key that has no row.
inline constexpr RowIndex kNoRow{0xFFFF'FFFFu};

// The most rows that one rank can hold of one table.
inline constexpr std::uint64_t kMaxRowsPerShard = 0xFFFF'FFFEu;

// A table's number is the same on every rank, and is never used twice while a server lives.
enum class TableId : std::uint32_t {};

// A rank is a process of the server, 0 .. ranks - 1, and drives one device.
enum class Rank : std::int32_t {};

// Returns the integer inside a strong type: `Value(key)`.
template <class Strong>
  requires std::is_enum_v<Strong>
constexpr auto Value(Strong strong) noexcept {
  return static_cast<std::underlying_type_t<Strong>>(strong);
}

}  // namespace slotwise

#endif  // SLOTWISE_TYPES_H_
