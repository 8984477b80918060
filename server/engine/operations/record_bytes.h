// RecordWriter and RecordReader: write and read numbers and arrays in a journal's records.
//
// Integers are little-endian; every array begins at a multiple of 8 bytes. A single function that names a
// record's fields in order serves to write and read the record:
//
//     static void Visit(auto& fields, auto& record) {
//       fields.Number(record.table);
//       fields.Number(record.rate);
//     }
//
// For a text or vector, Count comes before Elements.
//
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORD_BYTES_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORD_BYTES_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/durability/journal.h"
#include "slotwise/status.h"

namespace slotwise {

// The kind of a round's record; each operation's file defines its own. Values are written to disk, so no
// value may ever get another meaning.
enum class RecordKind : std::uint32_t {};

inline constexpr std::size_t kRecordAlign = 8;

constexpr std::size_t RecordPadding(std::size_t bytes) {
  return (kRecordAlign - bytes % kRecordAlign) % kRecordAlign;
}

// Returns a piece that owns its bytes.
template <class Container>
JournalPiece OwnedPiece(Container values) {
  const auto owner = std::make_shared<const Container>(std::move(values));
  return {std::as_bytes(std::span(*owner)), owner};
}

// Writes numbers and arrays one after the other. PutArray does not copy: the piece shares the owner.
class RecordWriter {
 public:
  template <class T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    numbers_.resize(numbers_.size() + sizeof(T));
    std::ranges::copy(bytes, numbers_.end() - sizeof(T));
  }

  void PutArray(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
    EndNumbers();
    size_ += bytes.size();
    if (!bytes.empty()) pieces_.push_back({bytes, std::move(owner)});
    Pad();
  }

  // These write the fields of a record.
  template <class T>
  void Number(const T& value) {
    Put(value);
  }
  template <class Container>
  void Count(const Container& values) {
    Put(static_cast<std::uint32_t>(values.size()));
  }
  template <class Container>
  void Elements(const Container& values) {
    const JournalPiece piece = OwnedPiece(values);
    PutArray(piece.bytes, piece.owner);
  }

  std::vector<JournalPiece> Finish() {
    EndNumbers();
    return std::move(pieces_);
  }

 private:
  static constexpr std::array<std::byte, kRecordAlign> kZeros{};

  void EndNumbers() {
    if (numbers_.empty()) return;
    size_ += numbers_.size();
    pieces_.push_back(OwnedPiece(std::exchange(numbers_, {})));
    Pad();
  }
  void Pad() {
    const std::size_t padding = RecordPadding(size_);
    if (padding > 0) pieces_.push_back({std::span(kZeros).first(padding), nullptr});
    size_ += padding;
  }

  std::vector<std::byte> numbers_;
  std::vector<JournalPiece> pieces_;
  std::size_t size_ = 0;
};

// Reads numbers and arrays in the order in which they were written. After a failure all further reads return
// zeros or empty arrays.
class RecordReader {
 public:
  // `bytes` begin at a multiple of kRecordAlign.
  explicit RecordReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T Get() {
    std::array<std::byte, sizeof(T)> value{};
    if (const auto from = Take(sizeof(T)); from.size() == sizeof(T))
      std::memcpy(value.data(), from.data(), sizeof(T));
    return std::bit_cast<T>(value);
  }

  template <class T>
  std::span<const T> GetArray(std::uint64_t count) {
    Take(RecordPadding(at_));
    if (count > bytes_.size() / sizeof(T)) Fail();
    const auto from = Take(failed() ? 0 : count * sizeof(T));
    Take(RecordPadding(at_));
    // The bytes are aligned, and any bytes make a T.
    return {reinterpret_cast<const T*>(from.data()), from.size() / sizeof(T)};
  }

  // Reads a count of elements, each of which takes at least `bytes` of the bytes that are left.
  std::uint32_t GetCount(std::size_t bytes) {
    const auto count = Get<std::uint32_t>();
    if (count > (bytes_.size() - at_) / bytes) Fail();
    return failed() ? 0 : count;
  }

  // These read the fields of a record.
  template <class T>
  void Number(T& value) {
    value = Get<T>();
  }
  template <class Container>
  void Count(Container& values) {
    values.resize(GetCount(sizeof(typename Container::value_type)));
  }
  template <class Container>
  void Elements(Container& values) {
    const auto elements = GetArray<typename Container::value_type>(values.size());
    values.assign(elements.begin(), elements.end());
  }

  void Fail() {
    if (!failed_at_) failed_at_ = at_;
  }
  bool failed() const { return failed_at_.has_value(); }

  // Returns OK if all bytes were read, otherwise INVALID_ARGUMENT with the place. Must be the last call.
  Status End() {
    if (!failed() && at_ != bytes_.size()) GetArray<std::byte>(0);  // a record that ends in numbers is padded
    if (!failed() && at_ == bytes_.size()) return {};
    return InvalidArgument("the record's bytes end, or do not fit together, at byte " +
                           std::to_string(failed_at_.value_or(at_)) + " of its body");
  }

 private:
  std::span<const std::byte> Take(std::size_t size) {
    if (failed() || size > bytes_.size() - at_) {
      Fail();
      return {};
    }
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::optional<std::size_t> failed_at_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORD_BYTES_H_
