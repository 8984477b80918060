// Encodes replies to calls on rows.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_ENCODE_ROWS_H_
#define SLOTWISE_SERVER_RPC_ENCODE_ROWS_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "server/engine/schedule/request.h"

namespace slotwise {

// These encode a v1.ImportReply and a v1.EraseReply.
grpc::ByteBuffer EncodeImportReply(std::uint64_t rows, std::uint64_t generation);
grpc::ByteBuffer EncodeEraseReply(std::uint64_t rows);

// Encodes a v1.ExportReply of records of `dim` values and `state_size` floats of state. Leaves the state out
// unless `with_state`.
// REQUIRES: rows.records.size() = rows.keys.size() · (dim + state_size).
grpc::ByteBuffer EncodeExportReply(const RowRecords& rows, std::uint32_t dim, std::uint32_t state_size,
                                   bool with_state, std::uint64_t generation);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ENCODE_ROWS_H_
