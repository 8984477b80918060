// Makes legal options, changes one field, and checks that the result is legal or is refused with the field's
// name and value.
#ifndef SLOTWISE_TESTS_INCLUDE_CHECKED_OPTIONS_H_
#define SLOTWISE_TESTS_INCLUDE_CHECKED_OPTIONS_H_

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "slotwise/table_options.h"

namespace slotwise {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline const std::vector<OptimizerKind> kEveryOptimizer = EveryKind<OptimizerKind>();

inline TableOptions LegalOptions(OptimizerKind kind = OptimizerKind::kSgd) {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = 16;
  options.optimizer.kind = kind;
  return options;
}

// Expects that LegalOptions(kind), changed by `change`, are refused with a message "<field> is <value>: ...".
inline void ExpectRefused(const std::string& field, const std::string& value,
                          const std::function<void(TableOptions&)>& change,
                          OptimizerKind kind = OptimizerKind::kSgd) {
  SCOPED_TRACE(field + " = " + value);
  TableOptions options = LegalOptions(kind);
  change(options);
  const Status status = Validate(options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::StartsWith(field + " is " + value));
}

inline void ExpectLegal(const std::function<void(TableOptions&)>& change,
                        OptimizerKind kind = OptimizerKind::kSgd) {
  TableOptions options = LegalOptions(kind);
  change(options);
  EXPECT_TRUE(Validate(options).ok()) << Validate(options).message();
}

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_INCLUDE_CHECKED_OPTIONS_H_
