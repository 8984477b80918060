// Saves and loads a table as a folder of files, the same files as slotwise.rows of the Python client:
//   keys.npy    uint64 [rows]
//   values.npy  float32 [rows, dim]
//   state.npy   float32 [rows, state size], if the export was made with state
//   table.json  {"options": TableOptions as protobuf's JSON, "steps": ..., "with_state": ..., "rows": ...},
//               and "learning_rate" if one has been set that is not the options'
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CTL_TABLE_FOLDER_H_
#define SLOTWISE_CLIENT_CTL_TABLE_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "slotwise/client.h"

namespace slotwise::ctl {

// Writes options as protobuf's own JSON, in which 64-bit numbers are strings.
nlohmann::ordered_json OptionsJson(const TableOptions& options);

// Writes `table` to `folder`, which appears whole, by a rename, and replaces a table that was saved there.
// Returns the number of rows. ALREADY_EXISTS: `folder` exists and is not a saved table.
Result<std::uint64_t> ExportTable(Client& client, const std::string& table,
                                  const std::filesystem::path& folder, bool with_state);

struct Imported {
  std::uint64_t rows = 0;
  // Names what starts anew because the rows came without the optimizer's state, or with scores of another
  // kind than the table's, and how many rows the table evicted meanwhile; empty: nothing.
  std::string warning;
};

// Imports the rows of `folder` into `table`. If the table does not exist, makes it with the options of
// table.json. Restores the learning rate if the table is made, and the learning rate and the count of steps
// if the rows come with state. A folder without state.npy has no state. Only regular files are read.
// INVALID_ARGUMENT: the files do not fit each other or the table, table.json is invalid, a key occurs twice,
// or the state is another optimizer's.
Result<Imported> ImportTable(Client& client, const std::string& table, const std::filesystem::path& folder,
                             bool with_state);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_TABLE_FOLDER_H_
