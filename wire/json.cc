#include "wire/json.h"

#include <google/protobuf/util/json_util.h>

#include <stdexcept>

#include "wire/table_options_proto.h"

namespace slotwise {

namespace {

std::string Print(const google::protobuf::Message& message,
                  google::protobuf::util::JsonPrintOptions options) {
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) throw std::logic_error("a message has no JSON: " + std::string(status.message()));
  return json;
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message, bool say_defaults) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = say_defaults;
  return Print(message, options);
}

std::string ToJsonLines(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  return Print(message, options);
}

Status FromJson(std::string_view text, google::protobuf::Message& message) {
  const auto parsed = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &message);
  return parsed.ok() ? Status() : InvalidArgument(std::string(parsed.message()));
}

std::string ToJson(const TableOptions& options) { return ToJson(ToProto(options), true); }

Result<TableOptions> TableOptionsFromJson(std::string_view text) {
  v1::TableOptions wire;
  if (Status status = FromJson(text, wire); !status.ok()) return status;
  return FromProto(wire);
}

}  // namespace slotwise
