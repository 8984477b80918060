// RoomReports: logs that the journal gets no space on its disk, and when it gets space again.
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
  // At most one line in this time says that there is no room; after such a line, one says that there is.
  static constexpr std::chrono::seconds kPause{60};

  // A round found no room for `bytes` bytes. `why` names the folder and the system's reason.
  void OnNone(const Status& why, std::uint64_t bytes, Time now);
  // Returns whether the last round found none.
  bool none() const { return since_.has_value(); }
  // A round found room.
  void OnRoom(Time now);

 private:
  std::optional<Time> since_;  // when rounds began to find no room; nothing if the last one found some
  std::optional<Time> said_;   // when the last line was logged
  bool open_ = false;          // the last line says that there is no room
  std::uint64_t rounds_ = 0;   // rounds that found no room
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ROOM_REPORTS_H_
