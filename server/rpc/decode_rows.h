// Decodes the Rows service's requests. Errors are those of decode.h.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_DECODE_ROWS_H_
#define SLOTWISE_SERVER_RPC_DECODE_ROWS_H_

#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <vector>

#include "server/engine/operations/erase_rows.h"
#include "server/engine/operations/import_rows.h"
#include "server/engine/tables.h"
#include "server/intake/find_table.h"
#include "slotwise/status.h"

namespace slotwise {

struct DecodedExport {
  TableInfo table;
  bool with_state = false;
  std::optional<std::vector<Key>> keys;  // nothing: all keys
};

Result<DecodedExport> DecodeExport(const grpc::ByteBuffer& bytes, const FindTable& find_table);

// Sets all fields except `done`.
Result<EraseRequest> DecodeErase(const grpc::ByteBuffer& bytes, const FindTable& find_table);

// Sets all fields except `done`. `table` is the stream's table, which the stream's first message sets.
Result<ImportRequest> DecodeImport(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                                   std::optional<TableInfo>& table);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_DECODE_ROWS_H_
