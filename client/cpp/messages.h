// Writes and reads messages of small fields, and reads exports. batch_exchange.h has those of lookups and
// pushes.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_MESSAGES_H_
#define SLOTWISE_CLIENT_CPP_MESSAGES_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "client/cpp/table_states.h"
#include "slotwise/client.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise::client {

// Returns the options of a table in a reply. INTERNAL: they are none.
Result<TableOptions> OptionsIn(const v1::TableOptions& said);
// Returns the options of a described table. INTERNAL: they are none, or another table's.
Result<TableOptions> DescribedOptions(const v1::DescribeTableReply& reply, std::string_view table);

ServerTopology TopologyOf(const v1::GetTopologyReply& reply);

// Says in a request what this client knows to be in the table.
template <class Message>
void SayAcknowledged(const TableState& acknowledged, Message& request) {
  if (acknowledged.instance == 0 || acknowledged.step == 0) return;
  request.mutable_acknowledged()->set_incarnation(acknowledged.instance);
  request.mutable_acknowledged()->set_table_step(acknowledged.step);
}

// Asks for a table, of which this client has had the state `acknowledged`.
v1::DescribeTableRequest DescribeRequest(std::string_view table, const TableState& acknowledged);

// Serialises any message of small fields.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);

// The arrays of one v1.ExportReply: of each key `dim` values and `state_size` floats of state.
struct ExportedRows {
  std::vector<Key> keys;
  std::vector<float> values;
  std::vector<float> state;
  std::uint64_t generation = 0;  // of the table; 0: the server does not say
};

// Reads a v1.ExportReply into `rows`, whose memory is used again. INTERNAL: the reply is not such a message,
// or its arrays do not match each other.
Status ReadExportReply(const grpc::ByteBuffer& reply, ExportedRows& rows);

// Parses any reply of small fields. INTERNAL: `reply` is not such a message.
Status Deserialize(const grpc::ByteBuffer& reply, google::protobuf::MessageLite& message);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_MESSAGES_H_
