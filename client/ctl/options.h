// Builds a table's options from flags and files, in protobuf's text format, so that flags can set all that
// admin.proto knows.
// Thread-safety: plain values and free functions.
#ifndef SLOTWISE_CLIENT_CTL_OPTIONS_H_
#define SLOTWISE_CLIENT_CTL_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise::ctl {

struct CreateFlags {
  std::string name = {};
  std::string file = {};  // a .pbtxt of TableOptions that the flags below change; empty: no file
  std::optional<std::uint32_t> dim = {};
  std::optional<std::uint32_t> slots = {};
  std::string combiner = {};     // "sum"
  std::string optimizer = {};    // "adam", or "adam { beta1: 0.8 }"
  std::string initializer = {};  // "uniform { low: -0.1 high: 0.1 }"
  std::optional<float> learning_rate = {};
  std::optional<std::uint64_t> seed = {};
  std::optional<std::uint64_t> initial_rows = {};
  std::optional<std::uint64_t> max_rows = {};
  std::optional<float> max_load = {};
};

// Returns INVALID_ARGUMENT, naming the flag, or the file and line, if the flags make no valid options.
Result<TableOptions> OptionsOf(const CreateFlags& flags);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_OPTIONS_H_
