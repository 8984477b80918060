// Lookups and pushes whose arrays lie in the memory of a GPU that a rank of the server has, on the same host:
// its device copies them from there, and writes rows there.
//
// Such a call has a request of its own and goes to that rank. It means what it means through every other
// transport, to the byte; a batch is not cut, so a step is one part of each table, and one that is larger
// than the server's limits.max_round_mib is refused. What the caller gives has to stay as it is until the
// call has ended, or until GpuPushUnderWay::has_arrays. Where a server has no GPU, its device's memory is the
// host's: with TransportKind::kGpu the arrays then lie in this process's own memory. Thread-safety: plain
// values, which may be let go of by any thread.
#ifndef SLOTWISE_GPU_H_
#define SLOTWISE_GPU_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "slotwise/batch.h"
#include "slotwise/data_type.h"

namespace slotwise {

// A GPU, and the stream that the arrays are written in.
struct Gpu {
  std::string name;        // one of Client::Gpus()
  void* stream = nullptr;  // a CUstream; null: the default stream
};

// A batch, in the GPU's memory. Without offsets each bag has one key.
struct GpuLookup {
  std::string_view table;
  BatchView batch;
  std::span<const std::int64_t> wide_offsets = {};  // instead of the batch's, if there are any
};
struct GpuPush {
  std::string_view table;
  BatchView batch;
  std::span<const std::int64_t> wide_offsets = {};
  // [samples · slots · dim] of the type that the call's values have on the wire: finite.
  const void* gradients = nullptr;
};

// The rows of a lookup: [samples · slots · dim], in the memory that the client shares with the server. The
// last owner lets go of the memory, which is used again once the lookup's stream has come to that point: work
// that reads it is asked of that stream, or is done by then.
struct GpuRows {
  std::shared_ptr<void> values;
  std::size_t size = 0;                // numbers
  DataType type = DataType::kFloat32;  // that the call's values have on the wire
};

// A push that has been started: of Client::PushOnGpuAsync.
// Thread-safety: any thread.
class GpuPushUnderWay {
 public:
  virtual ~GpuPushUnderWay() = default;
  // Returns whether the GPU's stream has been asked to copy the arrays. Then it may be asked at once for what
  // writes them again, and the push goes on by the copy, also if it has to be sent a second time. It is false
  // where the client has no connection yet.
  virtual bool has_arrays() const = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_GPU_H_
