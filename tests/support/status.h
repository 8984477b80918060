// Checks and unwraps a Status or a Result in tests.
// Thread-safety: free functions.
#ifndef SLOTWISE_TESTS_SUPPORT_STATUS_H_
#define SLOTWISE_TESTS_SUPPORT_STATUS_H_

#include <gtest/gtest.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "slotwise/status.h"

namespace slotwise::test {

// Returns the call's value. If the call failed, throws std::runtime_error with the status's message, which
// ends the test.
template <class T>
T Must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(*result);
}

// Expects a status of this code, whose message contains `words` and `more_words`.
inline void ExpectStatus(const Status& status, StatusCode code, std::string_view words,
                         std::string_view more_words = "",
                         std::source_location place = std::source_location::current()) {
  const testing::ScopedTrace trace(place.file_name(), static_cast<int>(place.line()), "expected here");
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string_view each : {words, more_words})
    EXPECT_NE(status.message().find(each), std::string::npos) << each << " is not in: " << status.message();
}

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_STATUS_H_
