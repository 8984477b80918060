// A bulk load takes rows with their whole records from host memory.
//
// Keys are distinct, so nothing is sorted, and new rows get no initial values. Throws std::bad_alloc.
// Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_BULK_LOAD_INL_
#define SLOTWISE_KERNELS_BULK_LOAD_INL_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/backend/concept.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/snapshot.h"
#include "kernels/row_store.inl"
#include "kernels/shard.h"

namespace slotwise {

// A host array where launches can read it: the array itself, or a copy.
template <Backend B, class T>
class OnDevice {
 public:
  OnDevice(typename B::Queue& queue, const T* host, std::size_t n) : data_(host) {
    if constexpr (!B::kSharesHostMemory) {
      T* const copy = copy_.Reserve(queue, n);
      B::CopyIn(queue, copy, host, n);
      data_ = copy;
    }
  }
  const T* data() const { return data_; }

 private:
  const T* data_;
  typename B::template Scratch<T> copy_;
};

// See Shard::Load. `spare` is overwritten.
template <Backend B>
Status LoadRows(typename B::Queue& queue, RowStore<B>& store, std::span<const Key> keys,
                const float* host_records, typename B::template Scratch<std::uint32_t>& spare) {
  const auto n = static_cast<std::uint32_t>(keys.size());
  const body::RowsRef values = store.values();
  const OnDevice<B, Key> on_device(queue, keys.data(), n);
  const OnDevice<B, float> records(queue, host_records, std::size_t{n} * values.floats);
  auto* const rows = reinterpret_cast<RowIndex*>(spare.Reserve(queue, n));
  store.ReserveAdd(queue, n);
  store.GoOn(queue);
  store.Bring(queue, on_device.data(), n);
  if (store.HasRoomFor(n)) {
    store.BeginAdd(queue, on_device.data(), body::Chosen{nullptr}, n, rows);
  } else {
    typename B::template Scratch<std::uint32_t> absent;
    const std::uint32_t added = B::ForEachNumbered(
        queue, n,
        body::FindRowsAndAbsent{{store.hash_table(), on_device.data(), rows}, absent.Reserve(queue, n)});
    if (store.rows() + std::uint64_t{added} > store.max_rows()) {
      return ResourceExhausted("this rank holds " + std::to_string(store.rows()) + " of at most " +
                               std::to_string(store.max_rows()) + " rows, and is to load " +
                               std::to_string(added) + " more");
    }
    store.MakeRoomFor(queue, added);
    store.BeginAdd(queue, on_device.data(), body::Chosen{absent.data()}, added, rows);
  }
  store.FinishAddWithoutValues(queue);
  B::ForEachTile(queue, n, values.dim, body::LoadRecords{values, rows, records.data(), on_device.data()});
  store.MarkChanged(queue, rows, n);
  return {};
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BULK_LOAD_INL_
