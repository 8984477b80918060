#include "client/cpp/batches.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "slotwise/sizing.h"

namespace slotwise::client {
namespace {

// The room that a request keeps for its fields that are not arrays, and for those of each table in it.
constexpr std::uint64_t kHeaderBytes = 768;
constexpr std::uint64_t kTableHeaderBytes = 256;

// A batch of fewer keys is sent as it is: a call of so many takes about as long as one of none.
constexpr std::size_t kLeastKeys = 256;
// All keys of a batch of up to so many are compared at once, in a few microseconds. Of more, some are looked
// at first.
constexpr std::size_t kMostKeysWithoutEstimate = 1024;
// Where a smaller share of the keys is repeated, the server and the wire are spared no more than the
// comparison and the copies take (docs/performance.md, "Each key once").
constexpr double kLeastRepeatedShare = 0.25;
// A batch of more keys is sent as it is: the comparison takes up to 50 bytes a key meanwhile.
constexpr std::size_t kMostKeys = std::size_t{1} << 22;

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

std::uint64_t KeyBytes(const TableBatch& table, SampleRange samples) {
  return PartBytes(table.view, table.checked.slots, samples);
}

// Returns the bytes of the arrays in a request that some samples of a table take.
std::uint64_t ArrayBytes(const Batches& batches, DataType type, std::size_t index, SampleRange samples) {
  const TableBatch& table = batches.tables[index];
  return KeyBytes(table, samples) + (batches.pushes ? ValueBytes(table, type, samples.size()) : 0);
}

// Returns the bytes that some samples of a table take in a round, of a lookup or of a step.
std::uint64_t RoundBytes(const Batches& batches, std::size_t index, SampleRange samples) {
  const TableBatch& table = batches.tables[index];
  const std::uint64_t slots = table.checked.slots;
  const std::uint64_t first = samples.first * slots;
  const std::uint64_t last = samples.last * slots;
  const auto& offsets = table.view.offsets;
  const std::uint64_t keys = offsets.empty() ? last - first : offsets[last] - offsets[first];
  return (batches.pushes ? sizing::StepBytes : sizing::RoundBytes)(
      keys, last - first, table.checked.width / slots, !table.view.weights.empty());
}

std::string TooLarge(const std::string& what, std::uint64_t bytes, std::string_view where,
                     std::string_view limit, std::uint64_t most) {
  return what + " takes " + std::to_string(bytes) + " bytes in " + std::string(where) + ", more than the " +
         std::to_string(most) + " of " + std::string(limit);
}

std::string NameOf(const Batches& batches, std::size_t table, SampleRange samples) {
  const std::string of_table = batches.many() ? " of table " + batches.tables[table].table : "";
  if (samples.size() <= 1) return "sample " + std::to_string(samples.first) + of_table;
  return "the part of samples " + std::to_string(samples.first) + " to " + std::to_string(samples.last - 1) +
         of_table;
}

// Refuses a piece that does not fit and was not to be cut further.
Status CheckPiece(const Batches& batches, const CutOptions& options, const Piece& piece) {
  const std::uint64_t in_round = RoundBytes(batches, piece.table, piece.samples);
  if (in_round > options.limits.round) {
    return ResourceExhausted(TooLarge(NameOf(batches, piece.table, piece.samples), in_round, "a round",
                                      "limits.max_round_mib", options.limits.round))
        .Because(Reason::kTooLarge);
  }
  // The few bytes around the arrays are not counted here, so the server has the last word.
  const std::uint64_t in_message = ArrayBytes(batches, options.type, piece.table, piece.samples);
  if (in_message <= options.limits.message) return {};
  return ResourceExhausted(TooLarge(NameOf(batches, piece.table, piece.samples), in_message, "a request",
                                    "limits.max_message_mib", options.limits.message))
      .Because(Reason::kTooLarge);
}

// Refuses a step that no round can hold, before any of its parts is sent. A step of several tables is
// applied in one round, so their bytes count together.
Status CheckStep(const Batches& batches, const CutOptions& options, const Pieces& pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += RoundBytes(batches, piece.table, piece.samples);
  if (bytes <= options.limits.round) return {};
  const std::string what = batches.tables.size() == 1
                               ? "the step of table " + batches.tables.front().table
                               : "the step of " + std::to_string(batches.tables.size()) + " tables";
  return ResourceExhausted(TooLarge(what, bytes, "a round", "limits.max_round_mib", options.limits.round) +
                           "; a step is applied whole, so it cannot be cut: push fewer samples a step")
      .Because(Reason::kTooLarge);
}

// Returns whether a request of these samples alone fits.
bool Fits(const Batches& batches, const CutOptions& options, std::size_t table, SampleRange samples) {
  const std::uint64_t in_message =
      kHeaderBytes + kTableHeaderBytes + ArrayBytes(batches, options.type, table, samples);
  // A step has to fit into a round as a whole, whatever its parts are.
  return in_message <= options.limits.message &&
         (batches.pushes || RoundBytes(batches, table, samples) <= options.limits.round);
}

// Cuts every table into `parts` parts, and, unless the caller chose their number, those that do not fit into
// smaller ones. Returns the parts of all tables, in the tables' order.
Pieces PiecesOf(const Batches& batches, const CutOptions& options, std::uint64_t parts) {
  std::vector<std::vector<SampleRange>> parts_of;  // by table
  std::size_t most = 0;
  for (std::size_t table = 0; table < batches.tables.size(); ++table) {
    const std::uint64_t samples = batches.tables[table].checked.samples;
    // A lookup has no empty part but that of a table without samples.
    const std::uint64_t own = batches.pushes ? parts : std::clamp<std::uint64_t>(samples, 1, parts);
    std::vector<SampleRange> cut = EvenParts(samples, own);
    if (options.parts == 0) {
      cut = HalveUntilFit(cut, [&](SampleRange part) { return Fits(batches, options, table, part); });
    }
    most = std::max(most, cut.size());
    parts_of.push_back(std::move(cut));
  }
  Pieces pieces;
  for (std::size_t table = 0; table < parts_of.size(); ++table) {
    const std::uint64_t samples = batches.tables[table].checked.samples;
    if (batches.pushes) parts_of[table].resize(most, {samples, samples});
    for (std::size_t part = 0; part < parts_of[table].size(); ++part) {
      pieces.push_back({table, part, parts_of[table][part]});
    }
  }
  return pieces;
}

// Returns whether the batch may have one key in each bag, and rows that are not weighted: it has as many keys
// as bags.
bool MayHaveOneKeyABag(const BatchView& batch) {
  return batch.weights.empty() && (batch.offsets.empty() || batch.offsets.size() == batch.keys.size() + 1);
}
// REQUIRES: MayHaveOneKeyABag.
bool HasOneKeyABag(const BatchView& batch) {
  for (std::size_t bag = 0; bag < batch.offsets.size(); ++bag) {
    if (batch.offsets[bag] != bag) return false;
  }
  return true;
}

// Returns a batch's distinct keys if it pays to send them alone.
std::optional<DistinctKeys> DistinctKeysIfManyRepeat(const BatchView& batch, std::uint32_t slots) {
  const std::span<const Key> keys = batch.keys;
  if (keys.size() < kLeastKeys || keys.size() > kMostKeys || !MayHaveOneKeyABag(batch)) return std::nullopt;
  const KeyHash hash = KeyHash::Draw();
  const bool estimates = keys.size() > kMostKeysWithoutEstimate;
  const double most = (1 - kLeastRepeatedShare) * static_cast<double>(keys.size());
  try {
    if (estimates && EstimateRepeatedShare(keys, hash) < kLeastRepeatedShare) return std::nullopt;
    if (!HasOneKeyABag(batch)) return std::nullopt;
    return FindDistinctKeys(keys, hash, slots, static_cast<std::size_t>(most));
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

}  // namespace

Status Check(Batches& batches, const std::vector<TableOptions>& options) {
  for (std::size_t i = 0; i < options.size(); ++i) {
    TableBatch& batch = batches.tables[i];
    const auto checked = (batches.gpu ? CheckBatchShape : CheckBatch)(batch.view, options[i]);
    Status status = checked.status();
    if (status.ok()) batch.checked = *checked;
    if (status.ok() && !batches.gpu) {
      status = batches.pushes ? CheckSize(batch, "gradients", batch.gradients.size())
                              : CheckSize(batch, "out", batch.out.size());
    }
    if (status.ok()) continue;
    return batches.many() ? status.InWords("table " + batch.table + ": " + status.message()) : status;
  }
  return {};
}

void SendEachKeyOnce(Batches& lookups) {
  for (TableBatch& table : lookups.tables) {
    auto distinct = DistinctKeysIfManyRepeat(table.view, table.checked.slots);
    if (!distinct) continue;
    table.distinct = std::make_shared<const DistinctKeys>(std::move(*distinct));
    const std::size_t bags = table.distinct->keys.size();
    table.view.keys = table.distinct->keys;
    // The offsets of bags of one key are 0, 1, 2, ...
    if (!table.view.offsets.empty()) table.view.offsets = table.view.offsets.first(bags + 1);
    table.checked.view = table.view;
    table.checked.samples = bags / table.checked.slots;
    table.caller_out = table.out;
    table.out = table.out.first(table.checked.samples * table.checked.width);
  }
}

void CopyRepeatedRows(const Batches& lookups) {
  for (const TableBatch& table : lookups.tables) {
    if (!table.distinct) continue;
    CopyRows(table.distinct->copies, table.checked.width / table.checked.slots, table.caller_out);
  }
}

Status Cut(Batches& batches, const CutOptions& options) {
  const auto weight = [&](const TableBatch& table, SampleRange samples) {
    return std::max(ValueBytes(table, options.type, samples.size()), KeyBytes(table, samples));
  };
  std::vector<BatchSize> sizes;
  for (const TableBatch& table : batches.tables) {
    sizes.push_back({table.checked.samples, weight(table, {0, table.checked.samples})});
  }
  const CutCounts counts = CountsFor(sizes, options.ranks, options.channels);
  const Pieces pieces = PiecesOf(batches, options, options.parts > 0 ? options.parts : counts.parts);
  if (batches.pushes) {
    if (Status status = CheckStep(batches, options, pieces); !status.ok()) return status;
  }
  for (const Piece& piece : pieces) {
    if (Status status = CheckPiece(batches, options, piece); !status.ok()) return status;
  }
  if (batches.tables.size() == 1) {
    batches.requests.clear();
    for (const Piece& piece : pieces) batches.requests.push_back({piece});
  } else {
    const std::uint64_t room = options.limits.message - std::min(options.limits.message, kHeaderBytes);
    batches.requests = Group(pieces, counts.requests, room, [&](const Piece& piece) -> PieceSize {
      return {weight(batches.tables[piece.table], piece.samples),
              kTableHeaderBytes + ArrayBytes(batches, options.type, piece.table, piece.samples)};
    });
  }
  return {};
}

void PutTogether(Batches& batches, std::uint64_t parts) {
  Pieces pieces;
  for (std::size_t table = 0; table < batches.tables.size(); ++table) {
    const std::uint64_t samples = batches.tables[table].checked.samples;
    pieces.push_back({table, 0, {0, samples}});
    for (std::uint64_t part = 1; part < parts; ++part) pieces.push_back({table, part, {samples, samples}});
  }
  batches.requests = {std::move(pieces)};
}

Status WithAnsweredParts(const Status& refusal, const Batches& batches, const AnsweredParts& answered) {
  std::string more;
  if (batches.requests.size() > 1) {
    std::uint64_t samples = 0;
    bool each_key_once = false;
    for (const TableBatch& table : batches.tables) {
      samples += table.checked.samples;
      each_key_once = each_key_once || table.distinct;
    }
    more = "; the client had cut the lookup into " + std::to_string(batches.requests.size()) +
           " parts, of which " + std::to_string(answered.parts()) + " (" +
           std::to_string(answered.samples()) + " of " + std::to_string(samples) + " samples" +
           (each_key_once ? ", of batches in which each key was sent once" : "") +
           ") were answered: their keys have rows, which hold first values, and so may keys of other "
           "parts";
  } else if (!batches.requests.empty() && batches.tables.size() > 1) {
    more = "; keys of the call's other tables may have got rows, which hold first values";
  }
  return refusal.InWords(refusal.message() + more);
}

}  // namespace slotwise::client
