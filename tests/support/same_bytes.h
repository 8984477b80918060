// SameBytes compares the bytes of two float arrays, and says where they differ.
//
// A comparison of floats would take -0 for +0, and a NaN as unequal to itself, but backends must agree on the
// bytes.
// Thread-safety: a pure function.
#ifndef SLOTWISE_TESTS_SUPPORT_SAME_BYTES_H_
#define SLOTWISE_TESTS_SUPPORT_SAME_BYTES_H_

#include <bit>
#include <cstdint>
#include <iomanip>
#include <vector>

#include "gtest/gtest.h"

namespace slotwise::test {

// `width` is the number of elements of a bag or row, so that a failure names bag and element.
inline ::testing::AssertionResult SameBytes(const std::vector<float>& actual,
                                            const std::vector<float>& expected, std::size_t width = 1) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " elements instead of " << expected.size();
  }
  std::size_t differing = 0;
  std::size_t first = 0;
  for (std::size_t i = actual.size(); i-- > 0;) {
    if (std::bit_cast<std::uint32_t>(actual[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      ++differing;
      first = i;
    }
  }
  if (differing == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << std::setprecision(9) << differing << " of " << actual.size() << " elements differ, first element "
         << first % width << " of " << first / width << ": " << actual[first] << " instead of "
         << expected[first];
}

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_SAME_BYTES_H_
