#include "server/engine/batch_gather.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace slotwise {

BatchLayout::BatchLayout(const Round& round, std::uint32_t slots, int ranks)
    : bags_of(static_cast<std::size_t>(ranks)), keys_of(static_cast<std::size_t>(ranks)) {
  for (const RoundPart& part : round.parts) {
    const auto rank = static_cast<std::size_t>(Value(part.ticket.rank));
    const Extent extent{std::size_t{part.samples} * slots, part.keys};
    parts.push_back({extent, size, {}});
    bags_of[rank] += extent.bags;
    keys_of[rank] += extent.keys;
    size.bags += extent.bags;
    size.keys += extent.keys;
  }

  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t p) { return round.parts[p].part; });
  in_part_order = std::ranges::is_sorted(order);
  Extent next;
  for (const std::size_t p : order) {
    parts[p].lies = next;
    next.bags += parts[p].size.bags;
    next.keys += parts[p].size.keys;
  }
}

namespace {

// Values begin at multiples of kValueAlign floats.
constexpr std::size_t kValueAlign = 16;

}  // namespace

BatchGather::BatchGather(Device& device, Stream& stream, Collective& collective, Exchange& exchange,
                         PendingRequests& tickets)
    : device_(device),
      stream_(stream),
      exchange_(exchange),
      me_(collective.rank()),
      tickets_(tickets),
      batch_upload_(device, stream),
      value_upload_(device, stream),
      keys_(device, exchange, me_),
      offsets_(device, exchange, me_),
      weights_(device, exchange, me_),
      values_(device, exchange, me_, kValueAlign),
      ordered_keys_(device, 1),
      ordered_offsets_(device, 1),
      ordered_weights_(device, 1),
      ordered_values_(device, kValueAlign),
      narrow_values_(device) {}

template <class Upload>
void BatchGather::ForMyParts(const TableBatch& batch, Upload upload) const {
  BatchLayout::Extent place;
  for (std::size_t p = 0; p < batch.round.parts.size(); ++p) {
    const Ticket& ticket = batch.round.parts[p].ticket;
    if (ticket.rank != me_) continue;
    const BatchLayout::Part& part = batch.layout.parts[p];
    upload(part, place, tickets_.BatchOf(ticket.number));
    place.bags += part.size.bags;
    place.keys += part.size.keys;
  }
}

const BatchPart* BatchGather::WholeOnDevice(const TableBatch& batch) const {
  if (batch.layout.bags_of.size() > 1 || batch.round.parts.size() != 1) return nullptr;
  const BatchPart& part = tickets_.BatchOf(batch.round.parts.front().ticket.number);
  return part.memory == MemoryKind::kDevice ? &part : nullptr;
}

std::vector<std::size_t> BatchGather::OffsetBlocks(const BatchLayout& layout) {
  std::vector<std::size_t> sizes = layout.bags_of;
  ++sizes.back();  // the last rank's block also has the offset that ends the batch
  return sizes;
}

void BatchGather::ReserveBatches(std::span<const TableBatch> batches) {
  keys_.Clear();
  offsets_.Clear();
  weights_.Clear();
  ordered_keys_.Clear();
  ordered_offsets_.Clear();
  ordered_weights_.Clear();
  std::size_t staged = 0;
  for (const TableBatch& batch : batches) {
    const BatchLayout& layout = batch.layout;
    const bool weighted = batch.round.weighted();
    if (WholeOnDevice(batch) != nullptr) {
      keys_.Add({0});
      offsets_.Add({0});
      weights_.Add({0});
      continue;
    }
    keys_.Add(layout.keys_of);
    offsets_.Add(OffsetBlocks(layout));
    weights_.Add(layout.keys_of, weighted ? 1 : 0);
    if (!layout.in_part_order) {
      ordered_keys_.size += layout.size.keys;
      ordered_offsets_.size += layout.size.bags + 1;
      if (weighted) ordered_weights_.size += layout.size.keys;
    }
    staged += sizeof(std::uint32_t);  // the offset that ends the batch
    ForMyParts(batch, [&](const BatchLayout::Part&, const BatchLayout::Extent&, const BatchPart& part) {
      staged += batch_upload_.StagedBytes(part.keys.bytes(), part.memory) + part.offsets.bytes();
      if (weighted) staged += part.keys.size() * sizeof(float);
    });
  }
  keys_.Reserve();
  offsets_.Reserve();
  weights_.Reserve();
  ordered_keys_.array.Reserve(ordered_keys_.size);
  ordered_offsets_.array.Reserve(ordered_offsets_.size);
  ordered_weights_.array.Reserve(ordered_weights_.size);
  batch_upload_.Begin(staged);
}

std::vector<TableWork::Share> BatchGather::UploadCarried(std::span<const TableBatch> batches,
                                                         const CarriedBatches& carried) {
  ReserveBatches(batches);
  std::size_t bytes = 0;
  for (const TableBatch& batch : batches) {
    const BatchLayout::Extent& size = batch.layout.size;
    bytes += size.keys * (sizeof(Key) + sizeof(float)) + (size.bags + 1) * sizeof(std::uint32_t);
  }
  batch_upload_.Begin(bytes);
  const auto for_parts = [&](std::size_t s, const auto& upload) {
    const TableBatch& batch = batches[s];
    for (std::size_t p = 0; p < batch.round.parts.size(); ++p) {
      const BatchLayout::Part& place = batch.layout.parts[p];
      upload(batch.round.parts[p], place, carried.Of(batch.round.parts[p], place.size.bags));
    }
  };
  for (std::size_t s = 0; s < batches.size(); ++s) {
    for_parts(s, [&](const RoundPart&, const BatchLayout::Part& place, const CarriedBatches::Arrays& part) {
      batch_upload_.Copy(keys_.All(s) + place.lies.keys, part.keys, place.size.keys * sizeof(Key));
    });
  }
  batch_upload_.Flush();
  for (std::size_t s = 0; s < batches.size(); ++s) {
    std::uint32_t* const offsets = offsets_.All(s);
    const auto to = [&](std::size_t first, std::size_t count) {
      return static_cast<std::uint32_t*>(batch_upload_.WriteTo(offsets + first, count * sizeof(*offsets)));
    };
    for_parts(s, [&](const RoundPart&, const BatchLayout::Part& place, const CarriedBatches::Arrays& part) {
      std::uint32_t* const counted = to(place.lies.bags, place.size.bags);
      std::memcpy(counted, part.offsets, place.size.bags * sizeof(*counted));
      for (std::size_t b = 0; b < place.size.bags; ++b)
        counted[b] += static_cast<std::uint32_t>(place.lies.keys);
    });
    const BatchLayout::Extent& size = batches[s].layout.size;
    *to(size.bags, 1) = static_cast<std::uint32_t>(size.keys);
  }
  batch_upload_.Flush();
  for (std::size_t s = 0; s < batches.size(); ++s) {
    if (!batches[s].round.weighted()) continue;
    for_parts(
        s, [&](const RoundPart& of, const BatchLayout::Part& place, const CarriedBatches::Arrays& part) {
          const std::size_t count = place.size.keys;
          float* const to = weights_.All(s) + place.lies.keys;
          if (of.weighted) return batch_upload_.Copy(to, part.weights, count * sizeof(float));
          std::fill_n(static_cast<float*>(batch_upload_.WriteTo(to, count * sizeof(float))), count, 1.0F);
        });
  }
  batch_upload_.Flush();
  device_.WorkStream().OrderAfter(stream_);
  std::vector<TableWork::Share> gathered;
  for (std::size_t s = 0; s < batches.size(); ++s) {
    const BatchLayout::Extent& size = batches[s].layout.size;
    BatchView& batch = gathered.emplace_back(&batches[s].table).batch;
    batch.keys = {keys_.All(s), size.keys};
    batch.offsets = {offsets_.All(s), size.bags + 1};
    if (batches[s].round.weighted()) batch.weights = {weights_.All(s), size.keys};
  }
  return gathered;
}

std::vector<TableWork::Share> BatchGather::Gather(std::span<const TableBatch> batches,
                                                  const CarriedBatches& carried) {
  const bool all_are_carried = std::ranges::all_of(batches, [&](const TableBatch& batch) {
    return batch.layout.in_part_order &&
           std::ranges::all_of(batch.round.parts, [&](const RoundPart& part) { return carried.Has(part); });
  });
  if (all_are_carried) return UploadCarried(batches, carried);
  ReserveBatches(batches);
  std::vector<std::size_t> uploaded;
  for (std::size_t s = 0; s < batches.size(); ++s) {
    if (WholeOnDevice(batches[s]) == nullptr) uploaded.push_back(s);
  }
  for (const std::size_t s : uploaded) UploadMyKeys(batches[s], keys_.Mine(s));
  batch_upload_.Flush();
  for (const std::size_t s : uploaded) UploadMyOffsets(batches[s], offsets_.Mine(s));
  batch_upload_.Flush();
  for (const std::size_t s : uploaded) {
    if (batches[s].round.weighted()) UploadMyWeights(batches[s], weights_.Mine(s));
  }
  batch_upload_.Flush();

  exchange_.stream().OrderAfter(stream_);
  std::vector<Exchange::Blocks> arrays;
  for (std::size_t s = 0; s < batches.size(); ++s) {
    arrays.push_back(keys_.BlocksOf(s));
    arrays.push_back(offsets_.BlocksOf(s));
    if (batches[s].round.weighted()) arrays.push_back(weights_.BlocksOf(s));
  }
  exchange_.AllGatherTogether(arrays);

  using Extent = BatchLayout::Extent;
  std::vector<TableWork::Share> gathered;
  gathered.reserve(batches.size());
  for (std::size_t s = 0; s < batches.size(); ++s) {
    BatchView& batch = gathered.emplace_back(&batches[s].table).batch;
    if (const BatchPart* const whole = WholeOnDevice(batches[s])) {
      batch = whole->view();
      continue;
    }
    const BatchLayout& layout = batches[s].layout;
    const Key* keys = InPartOrder(layout, &Extent::keys, 1, keys_.All(s), ordered_keys_);
    const std::uint32_t* offsets =
        InPartOrder(layout, &Extent::bags, 1, offsets_.All(s), ordered_offsets_, 1);
    batch.keys = {keys, layout.size.keys};
    batch.offsets = {offsets, layout.size.bags + 1};
    if (!batches[s].round.weighted()) continue;
    batch.weights = {InPartOrder(layout, &Extent::keys, 1, weights_.All(s), ordered_weights_),
                     layout.size.keys};
  }
  device_.WorkStream().OrderAfter(exchange_.stream());
  return gathered;
}

void BatchGather::UploadMyKeys(const TableBatch& batch, Key* mine) {
  ForMyParts(batch, [&](const BatchLayout::Part&, const BatchLayout::Extent& place, const BatchPart& part) {
    batch_upload_.Copy(mine + place.keys, part.keys.data(), part.keys.bytes(), part.memory);
  });
}

void BatchGather::UploadMyOffsets(const TableBatch& batch, std::uint32_t* mine) {
  const auto me = static_cast<std::size_t>(Value(me_));
  const BatchLayout& layout = batch.layout;
  const auto to = [&](std::size_t first, std::size_t count) {
    return static_cast<std::uint32_t*>(batch_upload_.WriteTo(mine + first, count * sizeof(*mine)));
  };
  ForMyParts(batch,
             [&](const BatchLayout::Part& place, const BatchLayout::Extent& block, const BatchPart& part) {
               const std::uint32_t* const offsets = part.offsets.data();
               const auto first_key = static_cast<std::uint32_t>(place.lies.keys);
               if (part.memory == MemoryKind::kDevice) {
                 return stream_.AddToEach(mine + block.bags, offsets, place.size.bags, first_key);
               }
               std::uint32_t* const counted = to(block.bags, place.size.bags);
               for (std::size_t b = 0; b < place.size.bags; ++b) counted[b] = first_key + offsets[b];
             });
  if (me + 1 == layout.bags_of.size()) {
    *to(layout.bags_of[me], 1) = static_cast<std::uint32_t>(layout.size.keys);
  }
}

void BatchGather::UploadMyWeights(const TableBatch& batch, float* mine) {
  ForMyParts(batch, [&](const BatchLayout::Part&, const BatchLayout::Extent& place, const BatchPart& part) {
    float* const to = mine + place.keys;
    if (part.weights.size() > 0) {
      return batch_upload_.Copy(to, part.weights.data(), part.weights.bytes(), part.memory);
    }
    const std::size_t count = part.keys.size();
    std::fill_n(static_cast<float*>(batch_upload_.WriteTo(to, count * sizeof(float))), count, 1.0F);
  });
}

bool BatchGather::HasWholeValues(const TableBatch& batch) const {
  const BatchPart* const whole = WholeOnDevice(batch);
  return whole != nullptr && whole->value_type == DataType::kFloat32;
}

void BatchGather::ReserveValues(std::span<const ValueShare> shares) {
  values_.Clear();
  ordered_values_.Clear();
  std::size_t staged = 0;
  std::size_t narrow = 0;  // the largest part of 16-bit numbers, in bytes
  for (const auto& [batch, columns, mine_alone] : shares) {
    if (HasWholeValues(batch)) {
      values_.Add({0});
      continue;
    }
    values_.Add(batch.layout.bags_of, columns);
    if (!batch.layout.in_part_order && !mine_alone) {
      ordered_values_.size += batch.layout.size.bags * columns + kValueAlign;
    }
    ForMyParts(batch, [&](const BatchLayout::Part&, const BatchLayout::Extent&, const BatchPart& part) {
      staged += value_upload_.StagedBytes(part.values.bytes(), part.memory);
      if (part.value_type != DataType::kFloat32) narrow = std::max(narrow, part.values.bytes());
    });
  }
  values_.Reserve();
  ordered_values_.array.Reserve(ordered_values_.size);
  value_upload_.Begin(staged);
  // A device with memory of its own converts the 16-bit numbers there, one part after the other.
  if (!device_.SharesHostMemory()) narrow_values_.Reserve(narrow);
}

void BatchGather::UploadMyBagValues(const ValueShare& share, float* mine) {
  const std::uint32_t columns = share.columns;
  std::byte* const there = device_.SharesHostMemory() ? nullptr : narrow_values_.data();
  ForMyParts(share.of,
             [&](const BatchLayout::Part& in_batch, const BatchLayout::Extent& place, const BatchPart& part) {
               float* const to = mine + place.bags * columns;
               const std::size_t bytes = part.values.bytes();
               ConstNumbers from = part.numbers();
               if (from.type == DataType::kFloat32)
                 return value_upload_.Copy(to, from.data, bytes, part.memory);
               if (there != nullptr && part.memory != MemoryKind::kDevice) {
                 value_upload_.Flush();
                 value_upload_.Copy(there, from.data, bytes, part.memory);
                 value_upload_.Flush();
                 from.data = there;
               }
               stream_.Convert(from, in_batch.size.bags * columns, to);
             });
}

std::vector<const float*> BatchGather::GatherBagValues(std::span<const ValueShare> shares) {
  ReserveValues(shares);
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if (!HasWholeValues(shares[s].of)) UploadMyBagValues(shares[s], values_.Mine(s));
  }
  value_upload_.Flush();

  exchange_.stream().OrderAfter(stream_);
  std::vector<const float*> values;
  values.reserve(shares.size());
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const auto& [batch, columns, mine_alone] = shares[s];
    if (HasWholeValues(batch)) {
      values.push_back(WholeOnDevice(batch)->values.data());
      continue;
    }
    values.push_back(mine_alone ? values_.Mine(s)
                                : InPartOrder(batch.layout, &BatchLayout::Extent::bags, columns,
                                              values_.Gather(s), ordered_values_));
  }
  return values;
}

template <class T>
const T* BatchGather::InPartOrder(const BatchLayout& layout, std::size_t BatchLayout::Extent::*unit,
                                  std::size_t width, const T* arrived, Ordered<T>& ordered,
                                  std::size_t behind) {
  if (layout.in_part_order) return arrived;
  const std::size_t all = layout.size.*unit * width;
  const std::size_t first = (ordered.used + ordered.align - 1) / ordered.align * ordered.align;
  T* const batch = ordered.array.data() + first;
  ordered.used = first + all + behind;
  for (const BatchLayout::Part& part : layout.parts) {
    exchange_.stream().Copy(batch + part.lies.*unit * width, arrived + part.arrives.*unit * width,
                            part.size.*unit * width * sizeof(T));
  }
  exchange_.stream().Copy(batch + all, arrived + all, behind * sizeof(T));
  return batch;
}

}  // namespace slotwise
