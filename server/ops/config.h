// Reads and checks the server's configuration file, and fills in every default.
//
// The command line may replace values of the file, so values are checked afterwards. Each error is one
// sentence, "server.pbtxt:12:3: limits.max_message_mib is 9999: must be 1 to 2047", with line and column if
// the file has the field. The code that makes the tables checks their options.
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
  v1::ServerConfig values;  // all set but advertise_host, threads, tables and FitLimits' fields
  ConfigPlaces places;      // where the values come from
};

// A flag of the command line that replaces a field.
struct FieldFlag {
  std::string flag;  // "--listen"
  ConfigPath path;
  std::function<void(v1::ServerConfig&)> set;
};

// Parses `text`, replaces values by the flags', and adds all errors to `errors`, with `file` as the file's
// name. The values are usable only if there are no errors.
Config ParseConfig(const std::string& text, const std::string& file, const std::vector<FieldFlag>& flags,
                   ConfigErrors& errors);

// Parses a file. INVALID_ARGUMENT has one error per line.
Result<Config> ParseConfig(const std::string& text, const std::string& file);

// Parses the file at `path`; an empty path stands for an empty file. A file that cannot be read is an error,
// too.
Config ReadConfig(const std::string& path, const std::vector<FieldFlag>& flags, ConfigErrors& errors);

// Returns a number that is equal for configurations that may serve together: those with the same limits,
// tables, `deterministic` and `partial_sums`. The address, the threads and the log may differ between
// machines.
std::uint64_t Fingerprint(const Config& config);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_H_
