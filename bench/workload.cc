#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace slotwise::bench {

std::vector<std::uint32_t> DrawRows(std::size_t n, std::uint32_t rows, double alpha, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> drawn(n);
  const double power = 1 - alpha;
  const double end = rows + 1.0;
  const double span = std::pow(end, power) - 1;
  for (std::uint32_t& row : drawn) {  // inverts the power law's continuous form
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    const double x = alpha == 0               ? 1 + u * rows
                     : std::abs(power) < 1e-9 ? std::pow(end, u)
                                              : std::pow(1 + u * span, 1 / power);
    row = std::min(rows - 1, static_cast<std::uint32_t>(x - 1));
  }
  return drawn;
}

Key KeyOf(std::uint64_t row) {  // SplitMix64 (Steele, Lea, Flood 2014), a bijection
  std::uint64_t z = (row + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return Key{z ^ (z >> 31)};
}

std::vector<Key> KeysOf(std::span<const std::uint32_t> rows) {
  std::vector<Key> keys(rows.size());
  std::ranges::transform(rows, keys.begin(), [](std::uint32_t row) { return KeyOf(row); });
  return keys;
}

std::vector<Key> KeysOfRange(std::uint64_t first, std::size_t n) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = KeyOf(first + i);
  return keys;
}

std::vector<std::uint32_t> EvenOffsets(std::size_t bags, std::uint32_t hot, std::uint32_t first) {
  std::vector<std::uint32_t> offsets(bags + 1);
  for (std::size_t b = 0; b <= bags; ++b) offsets[b] = first + static_cast<std::uint32_t>(b) * hot;
  return offsets;
}

}  // namespace slotwise::bench
