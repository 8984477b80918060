// Tests the stages of a call's time.
#include "server/engine/call_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace slotwise {
namespace {

using std::chrono::nanoseconds;

CallTimes::TimePoint At(std::int64_t ns) { return CallTimes::TimePoint(nanoseconds(ns)); }

std::optional<nanoseconds> In(const EndedCall& call, CallStage stage) {
  return call.stages[static_cast<std::size_t>(stage)];
}

nanoseconds SumOfStages(const EndedCall& call) {
  nanoseconds sum{0};
  for (const auto& stage : call.stages) sum += stage.value_or(nanoseconds(0));
  return sum;
}

TEST(CallTimes, StagesFollowEachOtherAndAreTheWholeCall) {
  CallTimes times(CallKind::kLookup, At(1000));
  times.NoteBytesIn(70);
  times.NoteSubmitted(3, 9, At(1010));
  times.NoteTaken(At(1110), nanoseconds(5000));
  times.NoteTaken(At(1200), nanoseconds(5050));  // a second round, of its other tables
  times.NoteAnswered(nanoseconds(5300), At(2110));
  times.NoteBytesOut(80);
  times.NoteReply(Status(), At(2115));
  const EndedCall call = times.End(At(2122));
  EXPECT_EQ(call.kind, CallKind::kLookup);
  EXPECT_EQ(call.samples, 3U);
  EXPECT_EQ(call.keys, 9U);
  EXPECT_EQ(call.bytes_in, 70U);
  EXPECT_EQ(call.bytes_out, 80U);
  EXPECT_EQ(In(call, CallStage::kDecode), nanoseconds(10));
  EXPECT_EQ(In(call, CallStage::kQueue), nanoseconds(100));
  EXPECT_EQ(In(call, CallStage::kRound), nanoseconds(700));
  EXPECT_EQ(In(call, CallStage::kExchange), nanoseconds(300));
  EXPECT_EQ(In(call, CallStage::kJournal), std::nullopt);
  EXPECT_EQ(In(call, CallStage::kEncode), nanoseconds(5));
  EXPECT_EQ(In(call, CallStage::kSend), nanoseconds(7));
  EXPECT_EQ(call.latency, nanoseconds(1122));
  EXPECT_EQ(SumOfStages(call), call.latency);
}

TEST(CallTimes, TheJournalIsAStageOfItsOwn) {
  CallTimes times(CallKind::kPush, At(0));
  times.NoteSubmitted(1, 1, At(10));
  times.NoteTaken(At(20), nanoseconds(100));
  times.NoteApplied(At(50), nanoseconds(110));
  times.NoteApplied(At(60), nanoseconds(115));     // the step's next table
  times.NoteAnswered(nanoseconds(500), At(1000));  // rounds of others have exchanged meanwhile
  times.NoteReply(Status(), At(1001));
  const EndedCall call = times.End(At(1002));
  EXPECT_EQ(In(call, CallStage::kRound), nanoseconds(25));
  EXPECT_EQ(In(call, CallStage::kExchange), nanoseconds(15));
  EXPECT_EQ(In(call, CallStage::kJournal), nanoseconds(940));
  EXPECT_EQ(SumOfStages(call), call.latency);
}

TEST(CallTimes, ACallWithoutARoundHasWaitedInTheQueue) {
  CallTimes times(CallKind::kPush, At(0));
  times.NoteSubmitted(1, 1, At(10));
  times.NoteAnswered(nanoseconds(500), At(30));
  times.NoteReply(Status(), At(31));
  const EndedCall call = times.End(At(32));
  EXPECT_EQ(In(call, CallStage::kQueue), nanoseconds(20));
  EXPECT_EQ(In(call, CallStage::kRound), std::nullopt);
  EXPECT_EQ(In(call, CallStage::kExchange), std::nullopt);
  EXPECT_EQ(SumOfStages(call), call.latency);
}

TEST(CallTimes, ACallOfNothingIsDecodedAndEncoded) {
  CallTimes times(CallKind::kLookup, At(100));
  times.NoteReply(Status(), At(110));
  const EndedCall call = times.End(At(112));
  EXPECT_EQ(In(call, CallStage::kDecode), nanoseconds(0));
  EXPECT_EQ(SumOfStages(call), call.latency);
}

TEST(CallTimes, ARefusedCallHasACodeAndNoStages) {
  CallTimes times(CallKind::kLookup, At(0));
  times.NoteSubmitted(1, 1, At(10));
  times.NoteReply(Unavailable("stopping"), At(31));
  const EndedCall call = times.End(At(32));
  EXPECT_EQ(call.code, StatusCode::kUnavailable);
  EXPECT_FALSE(call.busy);
  times.NoteReply(ResourceExhausted("busy", std::chrono::milliseconds(7)), At(31));
  EXPECT_TRUE(times.End(At(32)).busy);
  for (const auto& stage : call.stages) EXPECT_EQ(stage, std::nullopt);
}

}  // namespace
}  // namespace slotwise
