// A table as a folder of files, the same that slotwise.rows of the Python client saves and loads:
//   keys.npy    uint64 [rows]
//   values.npy  float32 [rows, dim]
//   state.npy   float32 [rows, state size], if it was asked for
//   table.json  {"options": TableOptions as protobuf's JSON, "steps": ..., "rows": ...}
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CTL_TABLE_FOLDER_H_
#define SLOTWISE_CLIENT_CTL_TABLE_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "slotwise/client.h"

namespace slotwise::ctl {

// As protobuf's own JSON writes them: 64-bit numbers are strings.
nlohmann::ordered_json ToJson(const TableOptions& options);

// Writes `table` to `folder`, which appears whole, by a rename; one saved earlier in its place is then removed. The
// result: how many rows. ALREADY_EXISTS: `folder` is there and is none of ours.
Result<std::uint64_t> ExportTable(Client& client, const std::string& table,
                                  const std::filesystem::path& folder, bool with_state);

// Gives `table` the rows of `folder`; if there is no such table, it is made with the options of table.json. With state,
// the count of steps in table.json is restored too. The result: how many rows. INVALID_ARGUMENT: the files do not fit each other or the table.
Result<std::uint64_t> ImportTable(Client& client, const std::string& table,
                                  const std::filesystem::path& folder, bool with_state);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_TABLE_FOLDER_H_
