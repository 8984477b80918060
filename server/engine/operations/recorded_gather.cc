#include "server/engine/operations/recorded_gather.h"

#include <algorithm>
#include <limits>
#include <string>

#include "server/engine/operations/recorded_checks.h"
#include "slotwise/sizing.h"

namespace slotwise {

Result<RecordedGather::Batch> RecordedGather::Gather(std::span<const RecordedBatches> of_ranks,
                                                     std::size_t share, const TableOptions* pushed_to,
                                                     const RecordColumns& columns) {
  // A part, and its arrays in the record of the rank that received it.
  struct Lying {
    RecordedPart part;
    const RecordedArrays* arrays;
  };
  std::vector<Lying> parts;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const RecordedBatches& record = of_ranks[rank];
    auto arrays = record.arrays.begin();
    for (std::size_t s = 0; s <= share; ++s) {
      for (const RecordedPart& part : record.shares[s].parts) {
        if (part.rank != rank) continue;
        if (s == share) parts.push_back({part, &*arrays});
        ++arrays;
      }
    }
  }
  if (pushed_to != nullptr) std::ranges::sort(parts, {}, [](const Lying& lying) { return lying.part.part; });

  const bool weighted =
      std::ranges::any_of(parts, [](const Lying& lying) { return lying.part.weighted != 0; });
  keys_.clear();
  offsets_.assign(1, 0);
  weights_.clear();
  values_.clear();
  for (const auto& [part, arrays] : parts) {
    if (Status status = CheckArrays(part, *arrays, pushed_to); !status.ok()) return status;
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max() - 1;
    if (keys_.size() + arrays->keys.size() > kMost || offsets_.size() + arrays->offsets.size() > kMost)
      return DataLoss("the round's parts have more than " + std::to_string(kMost) + " keys, or bags");
    const auto before = static_cast<std::uint32_t>(keys_.size());
    keys_.insert(keys_.end(), arrays->keys.begin(), arrays->keys.end());
    for (const std::uint32_t offset : arrays->offsets.subspan(1)) offsets_.push_back(before + offset);
    if (weighted && arrays->weights.empty()) weights_.insert(weights_.end(), arrays->keys.size(), 1.0F);
    weights_.insert(weights_.end(), arrays->weights.begin(), arrays->weights.end());
    // If the number of 16-bit numbers is odd, one more fills the last word.
    const std::size_t count = (arrays->offsets.size() - 1) * columns.all;
    if (count * BytesOf(arrays->value_type) > arrays->values.size())
      return DataLoss("a part has too few values");
    const std::size_t initial_value = values_.size();
    values_.resize(initial_value + count);
    const auto widened = std::span(values_).subspan(initial_value);
    Widen(arrays->values.data(), arrays->value_type, widened);
    if (Status status = CheckRows(widened, columns); !status.ok()) return status;
  }
  UseScratch(of_ranks.front().shares[share].table,
             (pushed_to == nullptr ? sizing::RoundBytes : sizing::StepBytes)(
                 keys_.size(), offsets_.size() - 1, columns.all, weighted));
  const auto upload = [&]<class T>(DeviceArray<T>& array, const std::vector<T>& from) {
    T* const to = array.Reserve(from.size());
    device_.Upload(to, from.data(), from.size() * sizeof(T));
    return std::span<const T>(to, from.size());
  };
  Batch batch;
  batch.view.keys = upload(device_keys_, keys_);
  batch.view.offsets = upload(device_offsets_, offsets_);
  if (weighted) batch.view.weights = upload(device_weights_, weights_);
  batch.values = upload(device_values_, values_).data();
  return batch;
}

BatchView RecordedGather::GatherKeys(TableId table, std::span<const Key> keys) {
  UseScratch(table, sizing::RoundBytes(keys.size(), keys.size(), 0, false));
  return key_batch_.Of(keys);
}

void RecordedGather::UseScratch(TableId table, std::uint64_t bytes) {
  const ScratchBudget::Batch batch{table, bytes};
  tables_.scratch().Use({&batch, 1});
}

}  // namespace slotwise
