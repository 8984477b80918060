// Tests which operations of a stream are timed, and when their times are counted.
#include "server/collective/sampled_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace slotwise {
namespace {

using std::chrono::nanoseconds;

// A stream whose operations end when a test says so; the n-th takes n nanoseconds.
struct Stream {
  std::uint64_t asked = 0;
  std::uint64_t done = 0;
  std::vector<std::uint64_t> timed = {};  // numbers of operations
};

class Marks {
 public:
  explicit Marks(Stream* stream) : stream_(*stream) {}
  void Begin() { begin_ = stream_.asked; }
  void End() {
    EXPECT_EQ(stream_.asked, begin_ + 1) << "an operation lies between the marks";
    stream_.timed.push_back(stream_.asked);
  }
  std::optional<nanoseconds> Took() const {
    if (stream_.done <= begin_) return std::nullopt;
    return nanoseconds(begin_ + 1);
  }

 private:
  Stream& stream_;
  std::uint64_t begin_ = 0;
};

class SampledTimesTest : public testing::Test {
 protected:
  void Operate(DurationCounter& counter, bool ends = true) {
    times_.Begin(counter);
    ++stream_.asked;
    times_.End();
    if (ends) stream_.done = stream_.asked;
  }
  std::uint64_t counted() const { return counter_.Read().count(); }

  Stream stream_;
  SampledTimes<Marks> times_{&stream_};
  DurationCounter counter_;
};

TEST_F(SampledTimesTest, OneOperationInSixteenIsTimedOnAverage) {
  for (int i = 0; i < 16'000; ++i) Operate(counter_);
  EXPECT_NEAR(static_cast<double>(stream_.timed.size()), 1000, 60);
  Operate(counter_);
  EXPECT_GE(counted() + 1, stream_.timed.size());
  std::uint64_t sum = 0;
  for (const std::uint64_t operation : stream_.timed) sum += operation;
  if (counted() < stream_.timed.size()) sum -= stream_.timed.back();
  EXPECT_EQ(counter_.Read().sum_ns, sum) << "each once";
}

TEST_F(SampledTimesTest, TheFirstOperationsAreNot) {
  for (int i = 0; i < 15; ++i) Operate(counter_);
  EXPECT_TRUE(stream_.timed.empty());
  Operate(counter_);
  EXPECT_EQ(stream_.timed, std::vector<std::uint64_t>{16});
}

// Rounds repeat their operations.
TEST_F(SampledTimesTest, EveryOperationOfAPatternIsTimed) {
  for (const std::size_t length : {2, 3, 4, 8, 16, 31, 32}) {
    std::vector<DurationCounter> counters(length);
    for (std::size_t i = 0; i < 1000 * length; ++i) Operate(counters[i % length]);
    for (std::size_t i = 0; i < length; ++i) {
      EXPECT_NEAR(static_cast<double>(counters[i].Read().count()), 62.5, 40) << i << " of " << length;
    }
  }
}

TEST_F(SampledTimesTest, TimesAreCountedByTheOperationWhenALaterOneBegins) {
  DurationCounter other;
  while (stream_.timed.empty()) Operate(counter_, false);
  const std::uint64_t first = stream_.timed[0];
  Operate(other, false);
  EXPECT_EQ(counted(), 0U) << "it has not ended";
  stream_.done = first;
  EXPECT_EQ(counted(), 0U);
  Operate(other, false);
  EXPECT_EQ(counted(), 1U);
  EXPECT_EQ(counter_.Read().sum_ns, first);
  Operate(other, false);
  EXPECT_EQ(counted(), 1U);
  EXPECT_EQ(other.Read().count(), 0U);
}

TEST_F(SampledTimesTest, AStreamThatIsFarBehindIsTimedAgainWhenItHasComeOn) {
  for (int i = 0; i < 10'000; ++i) Operate(counter_, false);
  EXPECT_EQ(stream_.timed.size(), SampledTimes<Marks>::kMarks);
  EXPECT_EQ(counted(), 0U);
  stream_.done = stream_.asked;
  Operate(counter_);
  EXPECT_EQ(counted(), SampledTimes<Marks>::kMarks);
  for (int i = 0; i < 1000; ++i) Operate(counter_);
  EXPECT_GT(stream_.timed.size(), SampledTimes<Marks>::kMarks + 40);
}

}  // namespace
}  // namespace slotwise
