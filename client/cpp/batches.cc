#include "client/cpp/batches.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace slotwise::client {
namespace {

// The room that a request keeps for its fields that are not arrays, and for those of each table in it.
constexpr std::uint64_t kHeaderBytes = 768;
constexpr std::uint64_t kTableHeaderBytes = 256;

Status CheckSize(const TableBatch& batch, std::string_view array, std::size_t size) {
  const CheckedBatch& checked = batch.checked;
  if (size == checked.samples * checked.width) return {};
  return InvalidArgument(std::string(array) + " has " + std::to_string(size) + " floats: must have " +
                         std::to_string(checked.samples * checked.width) + " (" +
                         std::to_string(checked.samples) + " samples of " + std::to_string(checked.width) +
                         ")");
}

std::uint64_t ValueBytes(const TableBatch& table, DataType type, std::uint64_t samples) {
  return BytesOf(type) * std::uint64_t{table.checked.width} * samples;
}

// Returns the bytes of the arrays in a share's request.
std::uint64_t ArrayBytes(const Batches& batches, DataType type, const Share& share) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < share.size(); ++i) {
    const TableBatch& table = batches.tables[i];
    bytes += PartBytes(table.view, table.checked.slots, share[i]);
    if (batches.pushes) bytes += ValueBytes(table, type, share[i].size());
  }
  return bytes;
}

// Returns the bytes that some samples of a table take in a round, of a lookup or of a step.
std::uint64_t RoundBytes(const Batches& batches, std::size_t index, SampleRange samples) {
  const TableBatch& table = batches.tables[index];
  const std::uint64_t slots = table.checked.slots;
  const std::uint64_t first = samples.first * slots;
  const std::uint64_t last = samples.last * slots;
  const auto& offsets = table.view.offsets;
  const std::uint64_t keys = offsets.empty() ? last - first : offsets[last] - offsets[first];
  return (batches.pushes ? StepBytes : GatheredBytes)(keys, last - first, table.checked.width / slots,
                                                      !table.view.weights.empty());
}

std::string TooLarge(const std::string& what, std::uint64_t bytes, std::string_view where,
                     std::string_view limit, std::uint64_t most) {
  return what + " takes " + std::to_string(bytes) + " bytes in " + std::string(where) + ", more than the " +
         std::to_string(most) + " of " + std::string(limit);
}

std::string NameOf(const Batches& batches, std::size_t table, SampleRange samples) {
  const std::string of_table = batches.many ? " of table " + batches.tables[table].table : "";
  if (samples.size() <= 1) return "sample " + std::to_string(samples.first) + of_table;
  return "the part of samples " + std::to_string(samples.first) + " to " + std::to_string(samples.last - 1) +
         of_table;
}

// Refuses a share that does not fit and was not to be cut further.
Status CheckShare(const Batches& batches, const CutOptions& options, const Share& share) {
  for (std::size_t i = 0; i < share.size(); ++i) {
    const std::uint64_t bytes = RoundBytes(batches, i, share[i]);
    if (bytes <= options.limits.round) continue;
    return ResourceExhausted(TooLarge(NameOf(batches, i, share[i]), bytes, "a round", "limits.max_round_mib",
                                      options.limits.round));
  }
  // The few bytes around the arrays are not counted here, so the server has the last word.
  const std::uint64_t bytes = ArrayBytes(batches, options.type, share);
  if (bytes <= options.limits.message) return {};
  const auto largest = std::ranges::max_element(share, {}, &SampleRange::size);
  return ResourceExhausted(
      TooLarge(NameOf(batches, static_cast<std::size_t>(largest - share.begin()), *largest), bytes,
               "a request", "limits.max_message_mib", options.limits.message));
}

// Refuses a step that no round can hold, before any of its parts is sent. A step of several tables is
// applied in one round, so their bytes count together.
Status CheckStep(const Batches& batches, const CutOptions& options, const std::vector<Share>& shares) {
  std::uint64_t bytes = 0;
  for (const Share& share : shares) {
    for (std::size_t i = 0; i < share.size(); ++i) bytes += RoundBytes(batches, i, share[i]);
  }
  if (bytes <= options.limits.round) return {};
  const std::string what = batches.tables.size() == 1
                               ? "the step of table " + batches.tables.front().table
                               : "the step of " + std::to_string(batches.tables.size()) + " tables";
  return ResourceExhausted(TooLarge(what, bytes, "a round", "limits.max_round_mib", options.limits.round) +
                           "; a step is applied whole, so it cannot be cut: push fewer samples a step");
}

}  // namespace

Status Check(Batches& batches, const std::vector<TableOptions>& options) {
  for (std::size_t i = 0; i < options.size(); ++i) {
    TableBatch& batch = batches.tables[i];
    const auto checked = CheckBatch(batch.view, options[i]);
    Status status = checked.status();
    if (status.ok()) {
      batch.checked = *checked;
      status = batches.pushes ? CheckSize(batch, "gradients", batch.gradients.size())
                              : CheckSize(batch, "out", batch.out.size());
    }
    if (status.ok()) continue;
    return batches.many ? Status(status.code(), "table " + batch.table + ": " + status.message()) : status;
  }
  return {};
}

Status Cut(Batches& batches, const CutOptions& options) {
  std::vector<std::uint64_t> samples;
  std::uint64_t all_values = 0;
  std::uint64_t all_keys = 0;
  for (const TableBatch& table : batches.tables) {
    samples.push_back(table.checked.samples);
    all_values += ValueBytes(table, options.type, table.checked.samples);
    all_keys += PartBytes(table.view, table.checked.slots, {0, table.checked.samples});
  }
  const auto fits = [&](const Share& share) {
    const std::uint64_t message =
        kHeaderBytes + kTableHeaderBytes * share.size() + ArrayBytes(batches, options.type, share);
    if (message > options.limits.message) return false;
    for (std::size_t i = 0; i < share.size(); ++i) {
      // A step has to fit into a round as a whole, whatever its parts are.
      if (!batches.pushes && RoundBytes(batches, i, share[i]) > options.limits.round) return false;
    }
    return true;
  };
  auto shares =
      options.parts > 0
          ? EvenShares(samples, options.parts)
          : HalveUntilFit(Cut(samples, std::max(all_values, all_keys), options.ranks, options.channels),
                          fits);
  if (batches.pushes) {
    if (Status status = CheckStep(batches, options, shares); !status.ok()) return status;
  }
  for (const Share& share : shares) {
    if (Status status = CheckShare(batches, options, share); !status.ok()) return status;
  }
  batches.shares = std::move(shares);
  return {};
}

Status WithAnsweredParts(const Status& refusal, const Batches& batches, const AnsweredParts& answered) {
  std::string more;
  if (batches.shares.size() > 1) {
    std::uint64_t samples = 0;
    for (const TableBatch& table : batches.tables) samples += table.checked.samples;
    more = "; the client had cut the lookup into " + std::to_string(batches.shares.size()) +
           " parts, of which " + std::to_string(answered.parts()) + " (" +
           std::to_string(answered.samples()) + " of " + std::to_string(samples) +
           " samples) were answered: their keys have rows, which hold first values, and so may keys of other "
           "parts";
  } else if (!batches.shares.empty() && batches.tables.size() > 1) {
    more = "; keys of the call's other tables may have got rows, which hold first values";
  }
  return {refusal.code(), refusal.message() + more};
}

}  // namespace slotwise::client
