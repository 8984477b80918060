#include "server/rpc/decode.h"

#include <array>
#include <utility>

#include "server/intake/wire_array.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/wire_reader.h"

namespace slotwise {

Result<CheckedLookup> DecodeLookup(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                                   ArrayPool* arrays) {
  v1::LookupRequest message;
  BatchArrays batch(arrays);
  const std::array fields{ReadInto(v1::LookupRequest::kKeysFieldNumber, batch.keys),
                          ReadInto(v1::LookupRequest::kOffsetsFieldNumber, batch.offsets),
                          ReadInto(v1::LookupRequest::kWeightsFieldNumber, batch.weights)};
  if (Status status = ReadMessage(bytes, fields, message); !status.ok()) return status;
  return CheckLookup(message, std::move(batch), find_table);
}

Result<PushRequest> DecodePush(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                               ArrayPool* arrays) {
  v1::PushRequest message;
  BatchArrays batch(arrays);
  WireNumbers gradients{.pool = arrays};
  const std::array fields{ReadInto(v1::PushRequest::kKeysFieldNumber, batch.keys),
                          ReadInto(v1::PushRequest::kOffsetsFieldNumber, batch.offsets),
                          ReadInto(v1::PushRequest::kWeightsFieldNumber, batch.weights),
                          ReadInto(v1::PushRequest::kGradientsFieldNumber, gradients)};
  if (Status status = ReadMessage(bytes, fields, message); !status.ok()) return status;
  return CheckPush(message, std::move(batch), std::move(gradients), find_table);
}

}  // namespace slotwise
