// The command line of slotwise-server.
// Thread-safety: a free function, for main's thread.
#ifndef SLOTWISE_SERVER_FLAGS_H_
#define SLOTWISE_SERVER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "server/ops/config.h"
#include "slotwise/status.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// What was said on the command line; what was not is the configuration file's, or the default.
struct Flags {
  std::string config_path;  // empty: no file
  bool check_config = false;
  std::optional<std::string> listen;
  std::optional<v1::Backend> backend;
  std::optional<std::uint32_t> threads;
  std::optional<std::string> log_level;
};

// The flags; or, after --help, --version or a mistake, which are answered here, the exit code.
std::variant<Flags, int> ParseFlags(int argc, char** argv);

// The configuration file with the flags' values in place of its own.
Result<Config> ReadConfig(const Flags& flags);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_FLAGS_H_
