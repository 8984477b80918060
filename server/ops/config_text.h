// Parses the text of a configuration's file, and finds all that is wrong with it: protobuf's parser stops at
// the first error.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_TEXT_H_
#define SLOTWISE_SERVER_OPS_CONFIG_TEXT_H_

#include <google/protobuf/descriptor.h>

#include <memory>
#include <string>

#include "server/ops/config_errors.h"
#include "server/ops/config_places.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// Parses `text`, and adds what is wrong with it to `errors`. `values` has all the rest: a field with an error
// is left out, and a name that is none of its field's is taken for a legal one. Returns where the values
// stand; null if the text cannot be read on behind an error, and nothing should be concluded from what it
// lacks. Then `values` is empty.
std::shared_ptr<const ConfigPlaces::Tree> ParseConfigText(const std::string& text, const std::string& file,
                                                          v1::ServerConfig& values, ConfigErrors& errors);

// Returns the values that a field may name: "BACKEND_AUTO, BACKEND_CPU or BACKEND_CUDA". Zero, which stands
// for a field that is left out, is none.
std::string LegalNames(const google::protobuf::EnumDescriptor& type);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_TEXT_H_
