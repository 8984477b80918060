// PiecewiseWidening widens 16-bit numbers to floats while the pieces of a message come in.
// Thread-safety: for one thread at a time.
#ifndef SLOTWISE_CLIENT_CPP_PIECEWISE_WIDENING_H_
#define SLOTWISE_CLIENT_CPP_PIECEWISE_WIDENING_H_

#include <array>
#include <cstddef>
#include <span>

#include "slotwise/data_type.h"

namespace slotwise::client {

// Widens 16-bit numbers, which come in pieces of any size, into `out`. REQUIRES: all pieces together hold as
// many numbers as `out`.
class PiecewiseWidening {
 public:
  PiecewiseWidening(DataType type, std::span<float> out) : type_(type), out_(out) {}

  void Add(std::span<const std::byte> piece) {
    if (split_ && !piece.empty()) {
      const std::array half{first_byte_, piece.front()};
      piece = piece.subspan(1);
      split_ = false;
      Write(half.data(), 1);
    }
    Write(piece.data(), piece.size() / kHalf);
    if (piece.size() % kHalf == 0) return;
    split_ = true;
    first_byte_ = piece.back();
  }

 private:
  static constexpr std::size_t kHalf = 2;

  void Write(const std::byte* halves, std::size_t count) {
    Widen(halves, type_, out_.first(count));
    out_ = out_.subspan(count);
  }

  const DataType type_;
  std::span<float> out_;  // the part that is not written yet
  bool split_ = false;    // the last piece ended within a number, after the byte below
  std::byte first_byte_{};
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_PIECEWISE_WIDENING_H_
