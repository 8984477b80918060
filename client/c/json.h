// The control path's answers as protobuf's JSON, with the fields' own names.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_C_JSON_H_
#define SLOTWISE_CLIENT_C_JSON_H_

#include <string>
#include <vector>

#include "slotwise/client.h"

namespace slotwise::c {

// Reads a v1.TableOptions. INVALID_ARGUMENT says where the text is none, or names the option and its value.
Result<TableOptions> TableOptionsFromJson(const std::string& json);

std::string ToJson(const TableCreation& creation);
std::string ToJson(const std::vector<TableOptions>& tables);
std::string ToJson(const TableDescription& table);
std::string ToJson(const TableDigest& digest);
std::string ToJson(const ServerTopology& topology);
// {"ranks": [GetStatsReply, ...]}, in rank order.
std::string ToJson(const std::vector<RankStats>& ranks);
std::string ToJson(const SessionDescription& session);
std::string ToJson(const CheckpointCreation& made);
std::string ToJson(const std::vector<CheckpointDescription>& checkpoints);
std::string ToJson(const CheckpointDetails& details);
std::string ToJson(const CheckpointVerification& verified);
// The CompactCheckpointReply.
std::string ToJson(const CheckpointDescription& folded);

}  // namespace slotwise::c

#endif  // SLOTWISE_CLIENT_C_JSON_H_
