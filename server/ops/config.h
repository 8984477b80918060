// Reads and checks the server's configuration file, and fills in every default.
//
// The command line may replace values of the file, so values are checked once it has. Errors are one sentence
// each, "server.pbtxt:12:3: limits.max_message_mib is 9999: must be 1 to 2047", with line and column if the
// file has the field. The code that makes the tables checks them as TableOptions.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_H_
#define SLOTWISE_SERVER_OPS_CONFIG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/ops/config_errors.h"
#include "server/ops/config_places.h"
#include "slotwise/status.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

struct Config {
  v1::ServerConfig values;  // every field is set but advertise_host, threads, tables and what FitLimits sets
  ConfigPlaces places;      // of the values
};

// A flag of the command line that takes the place of a field.
struct FieldFlag {
  std::string flag;  // "--listen"
  ConfigPath path;
  std::function<void(v1::ServerConfig&)> set;
};

// Parses `text`, lets the flags replace values, and adds all that is wrong to `errors`; `file` is the file's
// name there. The values are usable only if nothing is.
Config ParseConfig(const std::string& text, const std::string& file, const std::vector<FieldFlag>& flags,
                   ConfigErrors& errors);

// Parses a file. INVALID_ARGUMENT has one error a line.
Result<Config> ParseConfig(const std::string& text, const std::string& file);

// Parses the file at `path`; an empty path stands for an empty file. That it cannot be read, and why, is an
// error, too.
Config ReadConfig(const std::string& path, const std::vector<FieldFlag>& flags, ConfigErrors& errors);

// Returns a number that is equal for configurations that may serve together: they have the same limits,
// tables, `deterministic` and `partial_sums`. The address, the threads and the log may differ from machine to
// machine.
std::uint64_t Fingerprint(const Config& config);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_H_
