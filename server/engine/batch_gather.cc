#include "server/engine/batch_gather.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace slotwise {
namespace {

std::vector<std::size_t> Times(const std::vector<std::size_t>& counts, std::size_t factor) {
  std::vector<std::size_t> out(counts);
  for (std::size_t& count : out) count *= factor;
  return out;
}

}  // namespace

BatchLayout::BatchLayout(const Round& round, std::uint32_t slots, int ranks)
    : bags_of(static_cast<std::size_t>(ranks)), keys_of(static_cast<std::size_t>(ranks)) {
  for (const RoundPart& part : round.parts) {
    in_part_order = in_part_order && part.part >= (places.empty() ? 0 : round.parts[places.size() - 1].part);
    places.push_back({bags, keys});
    const auto rank = static_cast<std::size_t>(Value(part.ticket.rank));
    const std::size_t part_bags = std::size_t{part.samples} * slots;
    bags_of[rank] += part_bags;
    keys_of[rank] += part.keys;
    bags += part_bags;
    keys += part.keys;
  }
}

BatchGather::BatchGather(Device& device, Collective& collective)
    : collective_(collective),
      keys_(device),
      ordered_keys_(device),
      offsets_(device),
      ordered_offsets_(device),
      weights_(device),
      ordered_weights_(device),
      gradients_(device),
      ordered_gradients_(device),
      device_keys_(device),
      device_offsets_(device),
      device_weights_(device),
      device_gradients_(device) {}

BatchView BatchGather::Gather(const Round& round, const BatchLayout& layout, const PartOf& part_of) {
  GatherOnHost(round, layout, part_of);
  return OnDevice(round, layout);
}

BatchGather::Step BatchGather::GatherStep(const Round& round, const BatchLayout& layout, std::uint32_t dim,
                                          const PartOf& part_of, const GradientsOf& gradients_of) {
  GatherOnHost(round, layout, part_of);
  float* gradients = gradients_.Reserve(layout.bags * dim);
  for (std::size_t p = 0; p < round.parts.size(); ++p) {
    const Ticket& ticket = round.parts[p].ticket;
    if (ticket.rank != collective_.rank()) continue;
    std::ranges::copy(gradients_of(ticket.number), gradients + layout.places[p].first_bag * dim);
  }
  collective_.AllGatherBlocks(Times(layout.bags_of, dim * sizeof(float)), gradients);
  if (!layout.in_part_order) PutInPartOrder(round, layout, dim);
  return {OnDevice(round, layout), device_gradients_.From(gradients_.data(), layout.bags * dim)};
}

void BatchGather::GatherOnHost(const Round& round, const BatchLayout& layout, const PartOf& part_of) {
  Key* keys = keys_.Reserve(layout.keys);
  std::uint32_t* offsets = offsets_.Reserve(layout.bags + 1);
  float* weights = round.weighted() ? weights_.Reserve(layout.keys) : nullptr;
  for (std::size_t p = 0; p < round.parts.size(); ++p) {
    const Ticket& ticket = round.parts[p].ticket;
    if (ticket.rank != collective_.rank()) continue;
    const BatchView part = part_of(ticket.number).view();
    const auto [first_bag, first_key] = layout.places[p];
    std::ranges::copy(part.keys, keys + first_key);
    if (weights != nullptr && part.weights.empty()) std::fill_n(weights + first_key, part.keys.size(), 1.0F);
    if (weights != nullptr) std::ranges::copy(part.weights, weights + first_key);
    for (std::size_t b = 0; b < part.bags(); ++b) {
      offsets[first_bag + b] = static_cast<std::uint32_t>(first_key + part.offsets[b]);
    }
  }
  offsets[layout.bags] = static_cast<std::uint32_t>(layout.keys);
  collective_.AllGatherBlocks(Times(layout.keys_of, sizeof(Key)), keys);
  if (weights != nullptr) collective_.AllGatherBlocks(Times(layout.keys_of, sizeof(float)), weights);
  collective_.AllGatherBlocks(Times(layout.bags_of, sizeof(std::uint32_t)), offsets);
}

void BatchGather::PutInPartOrder(const Round& round, const BatchLayout& layout, std::uint32_t dim) {
  std::vector<std::size_t> order(round.parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t p) { return round.parts[p].part; });

  Key* keys = ordered_keys_.Reserve(layout.keys);
  std::uint32_t* offsets = ordered_offsets_.Reserve(layout.bags + 1);
  float* weights = round.weighted() ? ordered_weights_.Reserve(layout.keys) : nullptr;
  float* gradients = ordered_gradients_.Reserve(layout.bags * dim);
  std::size_t bag = 0;
  std::size_t key = 0;
  for (const std::size_t p : order) {
    const auto [first_bag, first_key] = layout.places[p];
    const bool last = p + 1 == layout.places.size();
    const std::size_t bags = (last ? layout.bags : layout.places[p + 1].first_bag) - first_bag;
    std::copy_n(keys_.data() + first_key, round.parts[p].keys, keys + key);
    if (weights != nullptr) std::copy_n(weights_.data() + first_key, round.parts[p].keys, weights + key);
    std::copy_n(gradients_.data() + first_bag * dim, bags * dim, gradients + bag * dim);
    for (std::size_t b = 0; b < bags; ++b) {
      offsets[bag + b] = static_cast<std::uint32_t>(offsets_.data()[first_bag + b] - first_key + key);
    }
    bag += bags;
    key += round.parts[p].keys;
  }
  offsets[layout.bags] = static_cast<std::uint32_t>(layout.keys);
  std::swap(keys_, ordered_keys_);
  std::swap(offsets_, ordered_offsets_);
  std::swap(weights_, ordered_weights_);
  std::swap(gradients_, ordered_gradients_);
}

BatchView BatchGather::OnDevice(const Round& round, const BatchLayout& layout) {
  const Key* keys = device_keys_.From(keys_.data(), layout.keys);
  const std::uint32_t* offsets = device_offsets_.From(offsets_.data(), layout.bags + 1);
  if (!round.weighted()) return {{keys, layout.keys}, {offsets, layout.bags + 1}};
  const float* weights = device_weights_.From(weights_.data(), layout.keys);
  return {{keys, layout.keys}, {offsets, layout.bags + 1}, {weights, layout.keys}};
}

}  // namespace slotwise
