#include "server/intake/sampled_squares.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace slotwise {
namespace {

// Adds the squares of kSize floats, to a sum for each place of kLanes, so that the compiler can vectorise the
// loop, and keep the sums in registers.
template <std::size_t kSize, std::size_t kLanes>
void AddSquares(const float* numbers, std::array<double, kLanes>& sums) {
  static_assert(kSize % kLanes == 0);
  std::array<double, kLanes> own = sums;
  for (std::size_t i = 0; i < kSize; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = numbers[i + lane];
      own[lane] += value * value;
    }
  }
  sums = own;
}

}  // namespace

void SampledSquares::Add(const void* numbers, DataType type, std::size_t count) {
  constexpr std::size_t kFloats = kLine / sizeof(float);
  const auto* const bytes = static_cast<const std::byte*>(numbers);
  const std::size_t of_a_line = kLine / BytesOf(type);
  const std::size_t lines = (count + of_a_line - 1) / of_a_line;
  std::size_t line = ahead_;
  for (; line < lines; line += kDistance) {
    const std::size_t begin = line * of_a_line;
    const std::size_t size = std::min(of_a_line, count - begin);
    const std::byte* const from = bytes + begin * BytesOf(type);
    std::array<float, 2 * kFloats> wide;
    if (size < of_a_line) wide = {};  // zeros behind a short line add nothing
    if (type == DataType::kFloat32) {
      std::memcpy(wide.data(), from, size * sizeof(float));
      AddSquares<kFloats>(wide.data(), squares_);
    } else {
      Widen(from, type, std::span(wide).first(size));
      AddSquares<2 * kFloats>(wide.data(), squares_);
    }
    numbers_ += size;
  }
  ahead_ = line - lines;
}

SquareSum SampledSquares::sum() const {
  SquareSum sum{.numbers = numbers_};
  for (const double lane : squares_) sum.squares += lane;
  return sum;
}

}  // namespace slotwise
