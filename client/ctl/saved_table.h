// ReadSaved reads the table.json beside the arrays of a saved table.
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

// The table that the arrays were saved from, as table.json describes it.
struct Saved {
  bool there = false;  // false: another program wrote the arrays, and there is no table.json
  TableOptions options = {};
  std::uint64_t steps = 0;
  float learning_rate = 0;  // 0: only the rate of the options was ever set
  std::uint64_t rows = 0;
  std::optional<bool> with_state = {};  // nothing: an older export, which does not say
};

// Reads a table.json; the options get the name `table`. INVALID_ARGUMENT, with the file, the field and its
// value: the file is not small and regular, is no JSON object, or has a field that no export writes.
Result<Saved> ReadSaved(const std::filesystem::path& path, const std::string& table);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_SAVED_TABLE_H_
