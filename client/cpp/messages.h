// The data path's messages: requests made of arrays with one copy, replies read to where they belong with one copy.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_MESSAGES_H_
#define SLOTWISE_CLIENT_CPP_MESSAGES_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "client/cpp/cut.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"

namespace slotwise::client {

// A batch that was checked against its table.
struct CheckedBatch {
  BatchView view;
  std::uint64_t samples = 0;
  std::uint32_t slots = 1;
  std::uint32_t width = 0;  // elements a sample: slots · dim
};

// INVALID_ARGUMENT, as the server would say it, unless `batch` is a whole number of samples of `slots` bags.
Result<CheckedBatch> CheckBatch(const BatchView& batch, std::uint32_t slots, std::uint32_t dim);

// A v1.LookupRequest for some of a batch's samples.
grpc::ByteBuffer LookupMessage(std::string_view table, LookupMode mode, DataType type,
                               const CheckedBatch& batch, SampleRange samples);

// A v1.PushRequest. `gradients` are the whole batch's; they travel as `type`.
grpc::ByteBuffer PushMessage(std::string_view table, const StepId& step, const CheckedBatch& batch,
                             SampleRange samples, std::span<const float> gradients, DataType type);

// Any message of small fields.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);

// The values of a v1.LookupReply, which travelled as `type`, to `out`, float[samples · width] as asked for: float32 with
// one copy. INTERNAL: no such message, or values of another type.
// FAILED_PRECONDITION: of another shape, because the table was made anew since its options were asked for.
Status ReadLookupReply(const grpc::ByteBuffer& reply, std::uint64_t samples, std::uint32_t width,
                       DataType type, std::span<float> out);

// Any reply of small fields. INTERNAL: not such a message.
Status Deserialize(const grpc::ByteBuffer& reply, google::protobuf::MessageLite& message);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_MESSAGES_H_
