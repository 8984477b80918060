#include "server/engine/room_reports.h"

#include <spdlog/spdlog.h>

namespace slotwise {
namespace {

double SecondsBetween(RoomReports::Time begin, RoomReports::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void RoomReports::OnNone(const Status& why, std::uint64_t bytes, Time now) {
  if (!since_) {
    since_ = now;
    rounds_ = 0;
  }
  ++rounds_;
  if (said_ && now - *said_ < kPause) return;
  said_ = now;
  open_ = true;
  spdlog::error("updates are refused, {} of them in {:.0f} s: {} ({} bytes were wanted)", rounds_,
                SecondsBetween(*since_, now), why.message(), bytes);
}

void RoomReports::OnRoom(Time now) {
  if (!since_) return;
  if (open_)
    spdlog::info("the journal goes on: it had no room for {:.0f} s, in which {} updates were refused",
                 SecondsBetween(*since_, now), rounds_);
  open_ = false;
  since_.reset();
}

}  // namespace slotwise
