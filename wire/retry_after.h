// The metadata in which a busy server's RESOURCE_EXHAUSTED says when to send the same request again, in
// milliseconds. It is trailing metadata that gRPC's own clients obey too (gRFC A6). The data transport has
// DataReply.retry_after_ms instead.
// Thread-safety: constants.
#ifndef SLOTWISE_WIRE_RETRY_AFTER_H_
#define SLOTWISE_WIRE_RETRY_AFTER_H_

namespace slotwise {

inline constexpr const char* kRetryAfterMetadata = "grpc-retry-pushback-ms";

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_RETRY_AFTER_H_
