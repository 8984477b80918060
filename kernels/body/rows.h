// RowsRef and RowsOf say where rows lie in memory, and WriteNewRows says what a new row holds.
//
// A row's record is its `dim` values, of the table's type, and then the optimizer's vectors of `dim` floats,
// in one piece, so that an update touches one place in memory. Behind values of 16 bits the vectors begin at
// a multiple of 16 bytes. An optimizer that keeps one float a row keeps it in an array of its own, in the
// order of the rows. A table with scores keeps each row's score, with the row's key, in a third array. A
// table that rounds by chance, which goes by the key, and has no scores keeps the key alone there.
//
// Outside of the table, a row is floats: its values, which are exact in floats, its state, and its score, as
// the bits of two floats.
#ifndef SLOTWISE_KERNELS_BODY_ROWS_H_
#define SLOTWISE_KERNELS_BODY_ROWS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/body/initial_value.h"
#include "kernels/body/portable.h"
#include "slotwise/data_type.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise::body {

// The key and the score of a row, side by side, so that an eviction reads them in the order of the rows.
struct alignas(16) ScoredKey {
  std::uint64_t key;
  std::uint64_t score;
};

// Rows that no key has have this score.
inline constexpr std::uint64_t kNoScore = kScoreOfNew;
// A row with this bit in its score is not evicted. The bit is set only while an eviction is decided on.
inline constexpr std::uint64_t kProtected = std::uint64_t{1} << 63;

// Calls use(Element()) with the type of a table's values: float, Float16 or BFloat16.
template <class Use>
SLOTWISE_HD void WithElement(DataType type, Use use) {
  switch (type) {
    case DataType::kFloat32:
      return use(float());
    case DataType::kFloat16:
      return use(Float16());
    case DataType::kBFloat16:
      return use(BFloat16());
  }
}

// Stores a value that an import, a load or an initializer brings: rounded to nearest. A finite value is
// stored as a finite one: the largest of the type, if there is none nearer.
SLOTWISE_HD inline void StoreValue(float* to, float value) { *to = value; }
template <class Half>
SLOTWISE_HD void StoreValue(Half* to, float value) {
  Half stored = Half::Of(value);
  // The number below infinity in magnitude is one less in its bits.
  constexpr std::uint16_t kMagnitude = 0x7FFF;
  const std::uint16_t infinity = Half::Of(HUGE_VALF).bits;
  if ((stored.bits & kMagnitude) == infinity) stored.bits = static_cast<std::uint16_t>(stored.bits - 1);
  *to = stored;
}

// All floats of a row, in the order in which it is exported.
struct FloatsOfRow {
  std::byte* record;
  DataType type;  // of the values
  float* state;   // behind the values
  float* shared;
  std::uint32_t dim;
  std::uint32_t in_record;
  std::uint32_t before_score;
  const ScoredKey* scored;

  // Returns any of the floats. The score is the last two, the lower 32 bits first.
  SLOTWISE_HD float Read(std::uint32_t j) const {
    if (j < dim) return ReadValue(j);
    if (j < before_score) return State(j);
    const auto bits = static_cast<std::uint32_t>(scored->score >> (j == before_score ? 0 : 32));
    float word = 0;
    memcpy(&word, &bits, sizeof(word));
    return word;
  }
  // Writes one of the floats; a value by StoreValue. REQUIRES: j < before_score.
  SLOTWISE_HD void Write(std::uint32_t j, float value) const {
    if (j >= dim) {
      State(j) = value;
      return;
    }
    WithElement(type, [this, j, value](auto element) {
      StoreValue(reinterpret_cast<decltype(element)*>(record) + j, value);
    });
  }

 private:
  SLOTWISE_HD float& State(std::uint32_t j) const { return j < in_record ? state[j - dim] : *shared; }
  SLOTWISE_HD float ReadValue(std::uint32_t j) const {
    float value = 0;
    WithElement(type, [this, j, &value](auto element) {
      value = LoadVector<float>(reinterpret_cast<const decltype(element)*>(record) + j);
    });
    return value;
  }
};

// Rows of Elements: float, Float16 or BFloat16.
template <class Element>
struct RowsOf {
  Element* records;
  float* shared;  // [rows] the float that the optimizer keeps once a row; null if it keeps none
  std::uint32_t dim;
  std::uint32_t stride;    // from one record to the next, in Elements
  std::uint32_t state_at;  // from a record's beginning to its state, in Elements

  SLOTWISE_HD Element* Record(RowIndex row) const {
    return records + static_cast<std::size_t>(Value(row)) * stride;
  }
  // Returns where the state in a record begins.
  SLOTWISE_HD float* State(Element* record) const {
    if constexpr (std::is_same_v<Element, float>) {
      return record + dim;
    } else {
      return reinterpret_cast<float*>(record + state_at);
    }
  }
  // REQUIRES: the optimizer keeps a float a row.
  SLOTWISE_HD float* Shared(RowIndex row) const { return shared + Value(row); }
};

// The rows of a table, whatever the type of their values.
struct RowsRef {
  std::byte* records;
  DataType type;
  float* shared;  // as in RowsOf
  std::uint32_t dim;
  std::uint32_t floats;     // of a row: dim, its state's, and its score's
  std::uint32_t in_record;  // those of the floats that are in a record
  std::uint32_t stride;     // from one record to the next, in bytes
  std::uint32_t state_at;   // from a record's beginning to its state, in bytes
  ScoredKey* scored;        // [rows]; null if the table keeps no scores
  Key* keys;                // [rows]; null if no step rounds by chance, or if `scored` has the keys

  SLOTWISE_HD std::byte* Record(RowIndex row) const {
    return records + static_cast<std::size_t>(Value(row)) * stride;
  }
  // REQUIRES: the optimizer keeps a float a row.
  SLOTWISE_HD float* Shared(RowIndex row) const { return shared + Value(row); }
  SLOTWISE_HD FloatsOfRow Floats(RowIndex row) const {
    std::byte* const record = Record(row);
    return {record,
            type,
            reinterpret_cast<float*>(record + state_at),
            shared == nullptr ? nullptr : Shared(row),
            dim,
            in_record,
            WithoutScore(),
            scored == nullptr ? nullptr : scored + Value(row)};
  }
  // Returns how many floats of a row are values or state.
  SLOTWISE_HD std::uint32_t WithoutScore() const { return scored == nullptr ? floats : floats - 2; }
  // Writes a row's key where the table keeps it, if it does.
  SLOTWISE_HD void WriteKey(RowIndex row, Key key) const {
    if (scored != nullptr) scored[Value(row)].key = Value(key);
    if (keys != nullptr) keys[Value(row)] = key;
  }
  // REQUIRES: Element is the type of the values.
  template <class Element>
  RowsOf<Element> As() const {
    constexpr auto kBytes = static_cast<std::uint32_t>(sizeof(Element));
    return {reinterpret_cast<Element*>(records), shared, dim, stride / kBytes, state_at / kBytes};
  }
};

// Writes a new row, which one tile works on: initial values, an optimizer's state that is all `state`, and a
// score.
struct WriteNewRows {
  RowsRef rows;
  InitializerOptions first;
  float state;
  std::uint64_t score;
  const Key* new_keys;       // [new rows]
  const RowIndex* new_rows;  // [new rows]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const Key key = new_keys[i];
    const FloatsOfRow floats = rows.Floats(new_rows[i]);
    for (std::uint32_t j = tile.lane(); j < rows.dim; j += Tile::kLanes)
      floats.Write(j, InitialValue(first, key, j));
    for (std::uint32_t j = rows.dim + tile.lane(); j < rows.WithoutScore(); j += Tile::kLanes)
      floats.Write(j, state);
    if (tile.lane() == 0) {
      rows.WriteKey(new_rows[i], key);
      if (rows.scored != nullptr) rows.scored[Value(new_rows[i])].score = score;
    }
  }
};

// Copies the floats of a row, which one tile works on, to where the host can fetch it.
struct CopyRecords {
  RowsRef rows;
  const RowIndex* from;        // indexed by `which`
  const std::uint32_t* which;  // [records]
  float* to;                   // [records][floats]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const FloatsOfRow floats = rows.Floats(from[which[i]]);
    float* out = to + static_cast<std::size_t>(i) * rows.floats;
    for (std::uint32_t j = tile.lane(); j < rows.floats; j += Tile::kLanes) out[j] = floats.Read(j);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROWS_H_
