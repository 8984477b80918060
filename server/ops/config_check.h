// Which values a configuration may have, and where in its file a wrong one stands.
// Thread-safety: free functions; ConfigPlaces refers to the tree it was given.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_
#define SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_

#include <google/protobuf/text_format.h>

#include <string>
#include <utility>

#include "slotwise/status.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// Starts of error sentences: "server.pbtxt:12:3: ", or "server.pbtxt: " for a field that the file does not have.
class ConfigPlaces {
 public:
  using Tree = google::protobuf::TextFormat::ParseInfoTree;
  ConfigPlaces(std::string file, const Tree& tree) : file_(std::move(file)), tree_(tree) {}

  std::string Field(int number) const;
  std::string Limit(int number) const;
  std::string Table(int index) const;

 private:
  std::string Place(const Tree& tree, const google::protobuf::FieldDescriptor* field, int index) const;

  std::string file_;
  const Tree& tree_;
};

// INVALID_ARGUMENT, with place, field and value. REQUIRES: defaults are filled in. Of tables, only that no two have
// one name.
Status CheckConfig(const v1::ServerConfig& config, const ConfigPlaces& where);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_
