// Parses the text of a configuration file and finds all of its errors; protobuf's parser stops at the first.
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

// Parses `text` into `values` and adds its errors to `errors`. A field with an error is left out, and an
// unknown name of an enum's value is replaced by a legal one. Returns the places of the values. Returns null,
// with empty `values`, if the text after an error cannot be parsed: then a missing field means nothing.
std::shared_ptr<const ConfigPlaces::Tree> ParseConfigText(const std::string& text, const std::string& file,
                                                          v1::ServerConfig& values, ConfigErrors& errors);

// Returns the legal names of a field's values: "BACKEND_AUTO, BACKEND_CPU or BACKEND_CUDA". Zero, which
// stands for a field that is left out, is not among them.
std::string LegalNames(const google::protobuf::EnumDescriptor& type);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_TEXT_H_
