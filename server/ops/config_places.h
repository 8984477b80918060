// ConfigPlaces knows where a configuration's values come from: a place in the file, or a flag.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_PLACES_H_
#define SLOTWISE_SERVER_OPS_CONFIG_PLACES_H_

#include <google/protobuf/text_format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/ops/config_errors.h"

namespace slotwise {

// A field of a message, or an element of a repeated field.
struct ConfigStep {
  int field;
  int index = -1;  // -1: the field is not repeated

  bool operator==(const ConfigStep&) const = default;
};
// A path from ServerConfig to a field: {kSecurityFieldNumber}, {kPrincipalsFieldNumber, 2}, and so on.
using ConfigPath = std::vector<ConfigStep>;

class ConfigPlaces {
 public:
  using Tree = google::protobuf::TextFormat::ParseInfoTree;
  // `tree` is null if there is no file, or the file could not be read.
  ConfigPlaces(std::string file, std::shared_ptr<const Tree> tree)
      : file_(std::move(file)), tree_(std::move(tree)) {}

  // Notes that a flag has replaced the value of a field.
  void SetFlag(ConfigPath path, std::string flag) { flags_.emplace_back(std::move(path), std::move(flag)); }
  // Notes that the file has a field under an older name.
  void SetOlderName(ConfigPath path, ConfigPath older) {
    older_names_.emplace_back(std::move(path), std::move(older));
  }

  // Returns the place of a field, or of the innermost message around it, as far as the file has them.
  ConfigPlace At(const ConfigPath& path) const;

 private:
  std::string file_;
  std::shared_ptr<const Tree> tree_;
  std::vector<std::pair<ConfigPath, std::string>> flags_;
  std::vector<std::pair<ConfigPath, ConfigPath>> older_names_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_PLACES_H_
