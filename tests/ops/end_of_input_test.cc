#include "server/ops/end_of_input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>

namespace slotwise {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends.data()), 0); }
  std::array<int, 2> ends{};
  int out() const { return ends[0]; }
  int in() const { return ends[1]; }
};

TEST(EndOfInput, CallsOnceTheWriterHasClosed) {
  const Pipe pipe;
  std::promise<void> ended;
  const EndOfInput end(pipe.out(), [&] { ended.set_value(); });
  close(pipe.in());
  ended.get_future().get();
}

TEST(EndOfInput, ForgetsWhatIsWrittenAndCallsOnlyAtTheEnd) {
  const Pipe pipe;
  std::promise<void> ended;
  std::atomic<bool> closing = false;
  const EndOfInput end(pipe.out(), [&] {
    EXPECT_TRUE(closing);
    ended.set_value();
  });
  // More than a pipe holds: the last write returns only after the first bytes were read.
  const std::array<char, 1 << 16> bytes{};
  for (int i = 0; i < 4; ++i) ASSERT_EQ(write(pipe.in(), bytes.data(), bytes.size()), ssize_t{1} << 16);
  closing = true;
  close(pipe.in());
  ended.get_future().get();
}

TEST(EndOfInput, CallsForAnInputThatCannotBeRead) {
  const Pipe pipe;
  close(pipe.out());
  std::promise<void> ended;
  const EndOfInput end(pipe.in(), [&] { ended.set_value(); });  // the end for writing
  ended.get_future().get();
  close(pipe.in());
}

TEST(EndOfInput, EndsWithoutACallWhileTheWriterLives) {
  const Pipe pipe;
  {
    const EndOfInput end(pipe.out(), [] { FAIL(); });
  }
  close(pipe.in());
  close(pipe.out());
}

}  // namespace
}  // namespace slotwise
