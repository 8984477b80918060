// RoomReports: says in the log that the journal gets no room on its disk, and when it gets some again.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_ROOM_REPORTS_H_
#define SLOTWISE_SERVER_ENGINE_ROOM_REPORTS_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "slotwise/status.h"

namespace slotwise {

class RoomReports {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A line says that there is no room, at most this often, and another one that there is, behind such a line.
  static constexpr std::chrono::seconds kPause{60};

  // A round found no room for so many bytes: `why` names the folder and the system's reason.
  void OnNone(const Status& why, std::uint64_t bytes, Time now);
  // Returns whether the last round found none.
  bool none() const { return since_.has_value(); }
  // A round found room.
  void OnRoom(Time now);

 private:
  std::optional<Time> since_;  // when the first round found none, if the last one did not find any either
  std::optional<Time> said_;   // when the log was told last
  bool open_ = false;          // the last line says that there is none
  std::uint64_t rounds_ = 0;   // that found none
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ROOM_REPORTS_H_
