#include "server/engine/batch_gather.h"

#include <algorithm>
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

BatchGather::BatchGather(Device& device, Stream& stream, Collective& collective, Exchange& exchange,
                         TicketBook& tickets)
    : device_(device),
      stream_(stream),
      exchange_(exchange),
      me_(collective.rank()),
      tickets_(tickets),
      keys_(device, exchange, me_),
      offsets_(device, exchange, me_),
      weights_(device, exchange, me_),
      values_(device, exchange, me_),
      ordered_keys_(device),
      ordered_offsets_(device),
      ordered_weights_(device),
      ordered_values_(device),
      narrow_values_(device),
      my_offsets_(device),
      fetched_(device),
      ones_(device) {}

template <class Upload>
void BatchGather::ForMyParts(const Round& round, const BatchLayout& layout, Upload upload) const {
  BatchLayout::Extent place;
  for (std::size_t p = 0; p < round.parts.size(); ++p) {
    const Ticket& ticket = round.parts[p].ticket;
    if (ticket.rank != me_) continue;
    const BatchLayout::Part& part = layout.parts[p];
    upload(part, place, tickets_.BatchOf(ticket.number));
    place.bags += part.size.bags;
    place.keys += part.size.keys;
  }
}

BatchView BatchGather::Gather(const Round& round, const BatchLayout& layout) {
  Key* const my_keys = keys_.Mine(layout.keys_of);
  ForMyParts(round, layout,
             [&](const BatchLayout::Part&, const BatchLayout::Extent& place, const BatchPart& part) {
               stream_.Copy(my_keys + place.keys, part.keys.data(), part.keys.bytes());
             });
  UploadMyOffsets(round, layout);  // the host counts offsets from the whole batch while the keys go up
  if (round.weighted()) UploadMyWeights(round, layout);

  using Extent = BatchLayout::Extent;
  exchange_.stream().OrderAfter(stream_);
  const Key* keys = InPartOrder(layout, &Extent::keys, 1, keys_.Gather(), ordered_keys_);
  const std::uint32_t* offsets =
      InPartOrder(layout, &Extent::bags, 1, offsets_.Gather(), ordered_offsets_, 1);
  BatchView batch{{keys, layout.size.keys}, {offsets, layout.size.bags + 1}};
  if (round.weighted()) {
    batch.weights = {InPartOrder(layout, &Extent::keys, 1, weights_.Gather(), ordered_weights_),
                     layout.size.keys};
  }
  device_.WorkStream().OrderAfter(exchange_.stream());
  return batch;
}

const std::uint32_t* BatchGather::OffsetsOnHost(const BatchPart& part) {
  if (part.memory != MemoryKind::kDevice) return part.offsets.data();
  std::uint32_t* const fetched = fetched_.Reserve(part.offsets.size());
  stream_.Copy(fetched, part.offsets.data(), part.offsets.bytes());
  stream_.Wait();
  return fetched;
}

void BatchGather::UploadMyOffsets(const Round& round, const BatchLayout& layout) {
  const auto me = static_cast<std::size_t>(Value(me_));
  // The last rank's block also has the offset that ends the batch.
  std::vector<std::size_t> offsets_of = layout.bags_of;
  ++offsets_of.back();
  std::uint32_t* const there = offsets_.Mine(offsets_of);
  std::uint32_t* const mine = device_.SharesHostMemory() ? there : my_offsets_.Reserve(offsets_of[me]);
  ForMyParts(round, layout,
             [&](const BatchLayout::Part& place, const BatchLayout::Extent& block, const BatchPart& part) {
               const std::uint32_t* const offsets = OffsetsOnHost(part);
               for (std::size_t b = 0; b < place.size.bags; ++b) {
                 mine[block.bags + b] = static_cast<std::uint32_t>(place.lies.keys + offsets[b]);
               }
             });
  if (me + 1 == offsets_of.size()) mine[layout.bags_of[me]] = static_cast<std::uint32_t>(layout.size.keys);
  stream_.Copy(there, mine, offsets_of[me] * sizeof(std::uint32_t));
}

void BatchGather::UploadMyWeights(const Round& round, const BatchLayout& layout) {
  std::size_t most = 0;  // keys of a part without weights
  ForMyParts(round, layout, [&](const BatchLayout::Part&, const BatchLayout::Extent&, const BatchPart& part) {
    if (part.weights.size() == 0) most = std::max(most, part.keys.size());
  });
  float* const ones = ones_.Reserve(most);
  std::fill_n(ones, most, 1.0F);
  float* const mine = weights_.Mine(layout.keys_of);
  ForMyParts(round, layout,
             [&](const BatchLayout::Part&, const BatchLayout::Extent& place, const BatchPart& part) {
               stream_.Copy(mine + place.keys, part.weights.size() == 0 ? ones : part.weights.data(),
                            part.keys.size() * sizeof(float));
             });
}

const float* BatchGather::UploadMyBagValues(const Round& round, const BatchLayout& layout,
                                            std::uint32_t columns) {
  float* const mine = values_.Mine(layout.bags_of, columns);
  std::size_t narrow = 0;  // the most bytes of a part that comes as 16 bits
  const auto is_narrow = [](const BatchPart& part) { return part.value_type != DataType::kFloat32; };
  ForMyParts(round, layout, [&](const BatchLayout::Part&, const BatchLayout::Extent&, const BatchPart& part) {
    if (is_narrow(part)) narrow = std::max<std::size_t>(narrow, part.values.bytes());
  });
  // A device with memory of its own converts what has come there, one part after the other.
  std::byte* const there = device_.SharesHostMemory() ? nullptr : narrow_values_.Reserve(narrow);
  ForMyParts(round, layout,
             [&](const BatchLayout::Part& in_batch, const BatchLayout::Extent& place, const BatchPart& part) {
               float* const to = mine + place.bags * columns;
               if (!is_narrow(part)) return stream_.Copy(to, part.values.data(), part.values.bytes());
               ConstNumbers from = part.numbers();
               if (there != nullptr) {
                 stream_.Copy(there, from.data, part.values.bytes());
                 from.data = there;
               }
               stream_.Convert(from, in_batch.size.bags * columns, to);
             });
  return mine;
}

const float* BatchGather::GatherBagValues(const Round& round, const BatchLayout& layout,
                                          std::uint32_t columns) {
  UploadMyBagValues(round, layout, columns);
  exchange_.stream().OrderAfter(stream_);
  const float* const values =
      InPartOrder(layout, &BatchLayout::Extent::bags, columns, values_.Gather(), ordered_values_);
  device_.WorkStream().OrderAfter(exchange_.stream());
  return values;
}

const float* BatchGather::MyBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns) {
  const float* const mine = UploadMyBagValues(round, layout, columns);
  device_.WorkStream().OrderAfter(stream_);
  return mine;
}

std::size_t BatchGather::bytes() const {
  return keys_.bytes() + offsets_.bytes() + weights_.bytes() + values_.bytes() + ordered_keys_.bytes() +
         ordered_offsets_.bytes() + ordered_weights_.bytes() + ordered_values_.bytes() +
         narrow_values_.bytes();
}

template <class T>
const T* BatchGather::InPartOrder(const BatchLayout& layout, std::size_t BatchLayout::Extent::*unit,
                                  std::size_t width, const T* arrived, DeviceArray<T>& ordered,
                                  std::size_t behind) {
  if (layout.in_part_order) return arrived;
  const std::size_t all = layout.size.*unit * width;
  T* const batch = ordered.Reserve(all + behind);
  for (const BatchLayout::Part& part : layout.parts) {
    exchange_.stream().Copy(batch + part.lies.*unit * width, arrived + part.arrives.*unit * width,
                            part.size.*unit * width * sizeof(T));
  }
  exchange_.stream().Copy(batch + all, arrived + all, behind * sizeof(T));
  return batch;
}

}  // namespace slotwise
