// Translates number types to the wire's enum. Thread-safety: a free function.
#ifndef SLOTWISE_WIRE_DATA_TYPE_PROTO_H_
#define SLOTWISE_WIRE_DATA_TYPE_PROTO_H_

#include "slotwise/data_type.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise {

inline v1::DataType ToProto(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return v1::DATA_TYPE_FLOAT32;
    case DataType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DataType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_DATA_TYPE_PROTO_H_
