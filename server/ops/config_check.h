// Checks a configuration's values, and says where in its file a wrong value stands.
// Thread-safety: free functions; ConfigPlaces refers to the tree that it was given.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_
#define SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_

#include <google/protobuf/text_format.h>

#include <string>
#include <utility>

#include "slotwise/status.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// Returns the beginnings of error sentences: "server.pbtxt:12:3: ", or "server.pbtxt: " for a field that the
// file does not have.
class ConfigPlaces {
 public:
  using Tree = google::protobuf::TextFormat::ParseInfoTree;
  ConfigPlaces(std::string file, const Tree& tree) : file_(std::move(file)), tree_(tree) {}

  std::string Field(int number) const;
  std::string Limit(int number) const;
  std::string DurabilityField(int number) const;
  std::string Table(int index) const;

 private:
  std::string FieldOf(int message, const google::protobuf::FieldDescriptor* field) const;
  std::string Place(const Tree& tree, const google::protobuf::FieldDescriptor* field, int index) const;

  std::string file_;
  const Tree& tree_;
};

// Returns INVALID_ARGUMENT, with place, field and value, if a value is wrong. Of tables, checks only that no
// two have the same name. REQUIRES: defaults are filled in.
Status CheckConfig(const v1::ServerConfig& config, const ConfigPlaces& where);

// Returns INVALID_ARGUMENT, with the field and its value, if `listen` or `metrics_listen` is an address that
// other machines may reach and `insecure` is not true. The command line may replace these fields, so that
// CheckConfig leaves them to this function. REQUIRES: CheckConfig has taken the fields.
Status CheckWhoReaches(const v1::ServerConfig& config);

// Returns INVALID_ARGUMENT, with both fields and their values, if two of `listen`, `metrics_listen` and
// `health_listen` name one port of an address, where one of them could not listen. Like CheckWhoReaches, it
// is asked of what the command line has made of the fields. REQUIRES: CheckConfig has taken the fields.
Status CheckPorts(const v1::ServerConfig& config);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_
