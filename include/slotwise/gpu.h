// Lookups and pushes may have their arrays in the memory of a GPU that a rank of the server has, on the same
// host: the rank's device copies the arrays from there, and writes rows there.
//
// Such a call has a request of its own and goes to that rank. It gives the same bytes as every other
// transport. A batch is not cut, so a step is one part of each table, and a step that is larger than the
// server's limits.max_round_mib is refused. The caller's arrays have to stay as they are until the call has
// ended, or until GpuPushUnderWay::has_arrays. Where a server has no GPU, its device's memory is the host's:
// with TransportKind::kGpu the arrays then lie in this process's own memory. Thread-safety: plain values,
// which any thread may release.
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

// A GPU, and the stream in which the arrays are written.
struct Gpu {
  std::string name;        // one of Client::Gpus()
  void* stream = nullptr;  // a CUstream; null: the default stream
};

// A batch, in the GPU's memory. Without offsets each bag has one key.
struct GpuLookup {
  std::string_view table;
  BatchView batch;
  std::span<const std::int64_t> wide_offsets = {};  // instead of the batch's offsets, if not empty
};
struct GpuPush {
  std::string_view table;
  BatchView batch;
  std::span<const std::int64_t> wide_offsets = {};
  // [samples · slots · dim] finite numbers of the type that the call's values have on the wire.
  const void* gradients = nullptr;
};

// The rows of a lookup: [samples · slots · dim], in the memory that the client shares with the server. The
// last owner releases the memory, which is used again once the lookup's stream has come to that point. So
// work that reads the memory has to be on that stream, or done by then.
struct GpuRows {
  std::shared_ptr<void> values;
  std::size_t size = 0;                // numbers
  DataType type = DataType::kFloat32;  // the type of the call's values on the wire
};

// A push that Client::PushOnGpuAsync has started.
// Thread-safety: any thread.
class GpuPushUnderWay {
 public:
  virtual ~GpuPushUnderWay() = default;
  // Returns whether the copy of the arrays is enqueued on the GPU's stream. Then work that overwrites the
  // arrays may be enqueued at once, and the push goes on with the copy, also if it has to be sent a second
  // time. Returns false while the client has no connection yet.
  virtual bool has_arrays() const = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_GPU_H_
