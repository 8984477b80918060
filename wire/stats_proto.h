// Translates a rank's counters between the wire's message and Slotwise's own struct.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_STATS_PROTO_H_
#define SLOTWISE_WIRE_STATS_PROTO_H_

#include "slotwise/server_stats.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {

// FromProto leaves out stages that it does not know.
RankStats FromProto(const v1::GetStatsReply& wire);
v1::GetStatsReply ToProto(const RankStats& stats);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_STATS_PROTO_H_
