// ReadSaved reads the table.json that lies beside a saved table's arrays.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CTL_SAVED_TABLE_H_
#define SLOTWISE_CLIENT_CTL_SAVED_TABLE_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise::ctl {

// Saved is the table that the arrays were saved from, as table.json says.
struct Saved {
  bool there = false;  // false: another program's arrays, of which nobody says anything
  TableOptions options = {};
  std::uint64_t steps = 0;
  float learning_rate = 0;  // 0: no other than that of the options has been set
  std::uint64_t rows = 0;
  std::optional<bool> with_state = {};  // older exports do not say
};

// Reads a table.json; the options get the name `table`. INVALID_ARGUMENT, which names the file, the field and
// its value: it is no small regular file, no JSON object, or has a field that no export writes so.
Result<Saved> ReadSaved(const std::filesystem::path& path, const std::string& table);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_SAVED_TABLE_H_
