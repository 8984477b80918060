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

BatchGather::BatchGather(Device& device, Collective& collective, Exchange& exchange)
    : device_(device),
      me_(collective.rank()),
      keys_(device, exchange, me_),
      offsets_(device, exchange, me_),
      weights_(device, exchange, me_),
      values_(device, exchange, me_),
      ordered_keys_(device),
      ordered_offsets_(device),
      ordered_weights_(device),
      ordered_values_(device) {}

template <class Write>
void BatchGather::ForMyParts(const Round& round, const BatchLayout& layout, Write write) const {
  BatchLayout::Extent place;
  for (std::size_t p = 0; p < round.parts.size(); ++p) {
    const Ticket& ticket = round.parts[p].ticket;
    if (ticket.rank != me_) continue;
    write(layout.parts[p], place, ticket.number);
    place.bags += layout.parts[p].size.bags;
    place.keys += layout.parts[p].size.keys;
  }
}

BatchView BatchGather::Gather(const Round& round, const BatchLayout& layout, const PartOf& part_of) {
  device_.Wait();  // the last round's parts have left the host's memory
  const auto me = static_cast<std::size_t>(Value(me_));
  // The last rank's block also has the offset that ends the batch.
  std::vector<std::size_t> offsets_of = layout.bags_of;
  ++offsets_of.back();
  Key* const my_keys = keys_.Mine(layout.keys_of);
  std::uint32_t* const my_offsets = offsets_.Mine(offsets_of);
  float* const my_weights = round.weighted() ? weights_.Mine(layout.keys_of) : nullptr;
  ForMyParts(round, layout,
             [&](const BatchLayout::Part& part, const BatchLayout::Extent& place, auto ticket) {
               const BatchView batch = part_of(ticket).view();
               std::ranges::copy(batch.keys, my_keys + place.keys);
               if (my_weights != nullptr && batch.weights.empty()) {
                 std::fill_n(my_weights + place.keys, batch.keys.size(), 1.0F);
               } else if (my_weights != nullptr) {
                 std::ranges::copy(batch.weights, my_weights + place.keys);
               }
               for (std::size_t b = 0; b < part.size.bags; ++b) {
                 my_offsets[place.bags + b] = static_cast<std::uint32_t>(part.lies.keys + batch.offsets[b]);
               }
             });
  if (me + 1 == offsets_of.size())
    my_offsets[layout.bags_of[me]] = static_cast<std::uint32_t>(layout.size.keys);

  using Extent = BatchLayout::Extent;
  const Key* keys = InPartOrder(layout, &Extent::keys, 1, keys_.Gather(), ordered_keys_);
  const std::uint32_t* offsets =
      InPartOrder(layout, &Extent::bags, 1, offsets_.Gather(), ordered_offsets_, 1);
  const BatchView batch{{keys, layout.size.keys}, {offsets, layout.size.bags + 1}};
  if (my_weights == nullptr) return batch;
  const float* weights = InPartOrder(layout, &Extent::keys, 1, weights_.Gather(), ordered_weights_);
  return {batch.keys, batch.offsets, {weights, layout.size.keys}};
}

void BatchGather::WriteMyBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns,
                                   const ValuesOf& values_of) {
  float* const mine = values_.Mine(layout.bags_of, columns);
  ForMyParts(round, layout, [&](const BatchLayout::Part&, const BatchLayout::Extent& place, auto ticket) {
    std::ranges::copy(values_of(ticket), mine + place.bags * columns);
  });
}

const float* BatchGather::GatherBagValues(const Round& round, const BatchLayout& layout,
                                          std::uint32_t columns, const ValuesOf& values_of) {
  WriteMyBagValues(round, layout, columns, values_of);
  return InPartOrder(layout, &BatchLayout::Extent::bags, columns, values_.Gather(), ordered_values_);
}

const float* BatchGather::MyBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns,
                                      const ValuesOf& values_of) {
  WriteMyBagValues(round, layout, columns, values_of);
  return values_.Alone();
}

template <class T>
const T* BatchGather::InPartOrder(const BatchLayout& layout, std::size_t BatchLayout::Extent::*unit,
                                  std::size_t width, const T* arrived, DeviceArray<T>& ordered,
                                  std::size_t behind) {
  if (layout.in_part_order) return arrived;
  const std::size_t all = layout.size.*unit * width;
  T* const batch = ordered.Reserve(all + behind);
  for (const BatchLayout::Part& part : layout.parts) {
    device_.Copy(batch + part.lies.*unit * width, arrived + part.arrives.*unit * width,
                 part.size.*unit * width * sizeof(T));
  }
  device_.Copy(batch + all, arrived + all, behind * sizeof(T));
  return batch;
}

}  // namespace slotwise
