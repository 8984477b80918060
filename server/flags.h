// Parses the command line of slotwise-server.
// Thread-safety: a free function, for main's thread.
#ifndef SLOTWISE_SERVER_FLAGS_H_
#define SLOTWISE_SERVER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "server/ops/config.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// The flags of the command line. An absent flag leaves the configuration file's value, or the default.
struct Flags {
  std::string config_path;  // empty: no file
  bool check_config = false;
  bool attached = false;
  std::optional<std::string> listen;
  std::optional<std::string> metrics_listen;
  std::optional<std::string> health_listen;
  bool insecure = false;
  std::optional<v1::Backend> backend;
  std::optional<std::uint32_t> threads;
  std::optional<std::string> log_level;
  std::optional<std::string> data;
  std::optional<v1::DurabilityMode> durability;
};

// Returns the flags; or an exit code after --help, --version or an error, for which it prints the answer.
std::variant<Flags, int> ParseFlags(int argc, char** argv);

// Reads the configuration file, and replaces its values by the flags' values. Adds all errors of the result
// to `errors`.
Config ReadConfig(const Flags& flags, ConfigErrors& errors);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_FLAGS_H_
