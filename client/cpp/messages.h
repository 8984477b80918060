// Writes the data path's requests from arrays with one copy, and reads its replies into arrays with one copy.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_MESSAGES_H_
#define SLOTWISE_CLIENT_CPP_MESSAGES_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/cut.h"
#include "client/cpp/message_memory.h"
#include "client/cpp/table_states.h"
#include "slotwise/batch.h"
#include "slotwise/client.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"
#include "slotwise/v1/admin.pb.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise::client {

// A batch that CheckBatch has checked against its table.
struct CheckedBatch {
  BatchView view;
  std::uint64_t samples = 0;
  std::uint32_t slots = 1;
  std::uint32_t width = 0;  // elements a sample: slots · dim
};

// Returns INVALID_ARGUMENT unless `batch` is a whole number of a table's samples, by its arrays' lengths; the
// arrays are not looked at.
Result<CheckedBatch> CheckBatchShape(const BatchView& batch, const TableOptions& table);

// Returns INVALID_ARGUMENT, with field, place and value, unless `batch` is a whole number of a table's
// samples, has finite weights, and, if the table has no combiner, one key in each bag.
Result<CheckedBatch> CheckBatch(const BatchView& batch, const TableOptions& table);

// Return a part's request without its arrays. `acknowledged`: the newest state of the table in which a step
// of this client was acknowledged; without an incarnation the request does not say.
v1::LookupRequest LookupFields(std::string_view table, LookupMode mode, DataType type, SampleRange samples,
                               const TableState& acknowledged = {});
// `looked_up`: what the rows were read of that the gradients are of; lineage 0: nobody knows.
// `learning_rate`: the step's own, if it has one.
v1::PushRequest PushFields(std::string_view table, const StepId& step, DataType type, SampleRange samples,
                           const TableState& looked_up, const TableState& acknowledged = {},
                           std::optional<float> learning_rate = {});

// Writes a v1.LookupRequest for `samples` of a batch.
grpc::ByteBuffer LookupMessage(MessageMemory& memory, std::string_view table, LookupMode mode, DataType type,
                               const CheckedBatch& batch, SampleRange samples,
                               const TableState& acknowledged = {});

// Writes a v1.PushRequest for `samples` of a batch. `gradients` are the whole batch's; the message holds them
// as `type`.
grpc::ByteBuffer PushMessage(MessageMemory& memory, std::string_view table, const StepId& step,
                             const CheckedBatch& batch, SampleRange samples, std::span<const float> gradients,
                             DataType type, const TableState& looked_up = {},
                             const TableState& acknowledged = {}, std::optional<float> learning_rate = {});

// Returns the options of a table in a reply. INTERNAL: they are none.
Result<TableOptions> OptionsIn(const v1::TableOptions& said);
// Returns the options of a described table. INTERNAL: they are none, or another table's.
Result<TableOptions> DescribedOptions(const v1::DescribeTableReply& reply, std::string_view table);

ServerTopology TopologyOf(const v1::GetTopologyReply& reply);

// Asks for a table, of which this client has had the state `acknowledged`.
v1::DescribeTableRequest DescribeRequest(std::string_view table, const TableState& acknowledged);

// Serialises any message of small fields.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);

// Checks that a reply with `received` bytes of values is one to `samples` samples of `width` numbers, which
// travelled as `type`, and that they are as many `numbers` as there is room for. Errors as ReadLookupReply's.
Status CheckReplyShape(const v1::LookupReply& fields, std::uint64_t received, std::uint64_t samples,
                       std::uint32_t width, DataType type, std::size_t numbers);

// Reads the values of a v1.LookupReply, which travelled as `type`, to `out`, float[samples · width]. float32
// values are copied once. INTERNAL: the reply is not such a message, or has values of another type.
// FAILED_PRECONDITION: the reply has another shape, because the table was made again since the client asked
// for its options. Returns the state of the table that the values were read of.
Result<TableState> ReadLookupReply(const grpc::ByteBuffer& reply, std::uint64_t samples, std::uint32_t width,
                                   DataType type, std::span<float> out);

// The arrays of one v1.ExportReply: of each key `dim` values and `state_size` floats of state.
struct ExportedRows {
  std::vector<Key> keys;
  std::vector<float> values;
  std::vector<float> state;
  std::uint64_t lineage = 0;  // of the table; 0: the server does not say
};

// Reads a v1.ExportReply into `rows`, whose memory is used again. INTERNAL: the reply is not such a message,
// or its arrays do not match each other.
Status ReadExportReply(const grpc::ByteBuffer& reply, ExportedRows& rows);

// Parses any reply of small fields. INTERNAL: `reply` is not such a message.
Status Deserialize(const grpc::ByteBuffer& reply, google::protobuf::MessageLite& message);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_MESSAGES_H_
