#include "wire/error_details.h"

#include <string_view>

#include "wire/status_code.h"

namespace slotwise {
namespace {

constexpr std::string_view kType = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr std::string_view kDomain = "slotwise";
constexpr std::string_view kPrefix = "REASON_";

}  // namespace

std::string ErrorDetails(const Status& status, const std::string& message) {
  v1::ErrorInfo info;
  info.set_reason(std::string(ToString(status.reason())));
  info.set_domain(std::string(kDomain));
  v1::ErrorStatus details;
  details.set_code(static_cast<int>(WireCode(status.code())));
  details.set_message(message);
  google::protobuf::Any& any = *details.add_details();
  any.set_type_url(std::string(kType));
  any.set_value(info.SerializeAsString());
  return details.SerializeAsString();
}

Reason ReasonIn(const std::string& details) {
  v1::ErrorStatus status;
  if (details.empty() || !status.ParseFromString(details)) return Reason::kNone;
  for (const google::protobuf::Any& any : status.details()) {
    v1::ErrorInfo info;
    if (any.type_url() != kType || !info.ParseFromString(any.value()) || info.domain() != kDomain) continue;
    v1::Reason reason = v1::REASON_UNSPECIFIED;
    if (v1::Reason_Parse(std::string(kPrefix) + info.reason(), &reason)) return FromProto(reason);
  }
  return Reason::kNone;
}

Reason FromProto(v1::Reason reason) {
  return v1::Reason_IsValid(reason) ? static_cast<Reason>(reason) : Reason::kNone;
}

}  // namespace slotwise
