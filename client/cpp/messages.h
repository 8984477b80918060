// Writes and reads small messages, and reads exports. batch_exchange.h has those of lookups and pushes.
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

// Returns the options of a table in a reply. INTERNAL: they are invalid.
Result<TableOptions> OptionsIn(const v1::TableOptions& said);
// Returns the options in the reply of DescribeTable. INTERNAL: they are invalid, or another table's.
Result<TableOptions> DescribedOptions(const v1::DescribeTableReply& reply, std::string_view table);

ServerTopology TopologyOf(const v1::GetTopologyReply& reply);

// Writes into a request the newest state of the table in which a step of this client was acknowledged.
template <class Message>
void SayAcknowledged(const TableState& acknowledged, Message& request) {
  if (acknowledged.instance == 0 || acknowledged.step == 0) return;
  request.mutable_acknowledged()->set_incarnation(acknowledged.instance);
  request.mutable_acknowledged()->set_table_step(acknowledged.step);
}

// Makes a request for a table's description, with the state `acknowledged` as above.
v1::DescribeTableRequest DescribeRequest(std::string_view table, const TableState& acknowledged);

// Serialises a message of small fields.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);

// The arrays of one v1.ExportReply: each key has `dim` values and `state_size` floats of optimizer state.
struct ExportedRows {
  std::vector<Key> keys;
  std::vector<float> values;
  std::vector<float> state;
  std::uint64_t generation = 0;  // of the table; 0: unknown
};

// Reads a v1.ExportReply into `rows`, and reuses the memory of `rows`. INTERNAL: the reply is no such
// message, or the sizes of its arrays do not match.
Status ReadExportReply(const grpc::ByteBuffer& reply, ExportedRows& rows);

// Parses a reply of small fields. INTERNAL: `reply` is no such message.
Status Deserialize(const grpc::ByteBuffer& reply, google::protobuf::MessageLite& message);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_MESSAGES_H_
