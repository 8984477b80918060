// The server's configuration file: read, checked, and with every default filled in.
//
// Errors are one sentence, "server.pbtxt:12:3: limits.max_message_mib is 9999: must be 1 to 2047", with line and
// column where the file has the field. The tables are checked as TableOptions, by who makes them; Place says where
// the file has each.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_H_
#define SLOTWISE_SERVER_OPS_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "slotwise/status.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

struct Config {
  v1::ServerConfig values;                // nothing is left unset but advertise_host, threads and tables
  std::vector<std::string> table_places;  // of values.tables(i): "server.pbtxt:12:1: tables[0]"
};

// INVALID_ARGUMENT: the first error in `text`. `file` is what to call it.
Result<Config> ParseConfig(const std::string& text, const std::string& file);

// ParseConfig of a file's text; NOT_FOUND, with the reason, if it cannot be read.
Result<Config> ReadConfig(const std::string& path);

// What a server without a configuration file does.
Config DefaultConfig();

// A number that is equal for configurations that may serve together: the same limits and tables, `deterministic` or
// not, the same `partial_sums`. Where a rank listens, its threads and its log may differ from machine to machine.
std::uint64_t Fingerprint(const Config& config);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_H_
