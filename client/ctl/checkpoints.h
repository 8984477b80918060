// Runs slotwise-ctl's commands about checkpoints.
// Thread-safety: free functions, for one thread.
#ifndef SLOTWISE_CLIENT_CTL_CHECKPOINTS_H_
#define SLOTWISE_CLIENT_CTL_CHECKPOINTS_H_

#include <string>
#include <vector>

#include "client/ctl/commands.h"
#include "slotwise/client.h"

namespace slotwise::ctl {

// On a terminal, saving, verifying and compacting show on stderr how long they have been running.
// `value_type`: "float32", "float16" or "bfloat16".
Result<Answer> SaveCheckpoint(Client& client, bool delta, const std::string& value_type);
Result<Answer> ListCheckpoints(Client& client);
Result<Answer> ShowCheckpoint(Client& client, const std::string& id);
Result<Answer> VerifyCheckpoint(Client& client, const std::string& id);
// `row_dtype`: "float32", "float16", "bfloat16", or empty: not given. `rounding`: "stochastic", "nearest", or
// empty. INVALID_ARGUMENT: a rounding without a type of 16 bits.
Result<Answer> LoadCheckpoint(Client& client, const std::string& id, const std::vector<std::string>& tables,
                              const std::string& row_dtype, const std::string& rounding);
Result<Answer> PinCheckpoint(Client& client, const std::string& id);
Result<Answer> ReleaseCheckpoint(Client& client, const std::string& id);
Result<Answer> CompactCheckpoint(Client& client, const std::string& id);

// Formats seconds since 1970 as UTC: "2026-11-22 20:29:01".
std::string TimeText(std::uint64_t seconds);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_CHECKPOINTS_H_
