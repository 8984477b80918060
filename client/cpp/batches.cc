#include "client/cpp/batches.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "slotwise/sizing.h"

namespace slotwise::client {
namespace {

// A request keeps this room for its fields other than arrays, in all and for each table.
constexpr std::uint64_t kHeaderBytes = 768;
constexpr std::uint64_t kTableHeaderBytes = 256;

// Sizes of requests in bytes. Fewer than kLeastRequest do not pay; gRPC moves 1 to 4 MiB fastest.
constexpr std::uint64_t kLeastRequest = 64 << 10;
constexpr std::uint64_t kGoodRequest = 1 << 20;
constexpr std::uint64_t kLargestRequest = 4 << 20;

constexpr std::uint64_t DivideUp(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }

Status CheckCombiner(std::span<const std::uint32_t> offsets, Combiner combiner) {
  if (combiner != Combiner::kNone) return {};
  for (std::size_t bag = 0; bag < offsets.size(); ++bag) {
    if (offsets[bag] == bag) continue;
    return InvalidArgument("offsets[" + std::to_string(bag) + "] is " + std::to_string(offsets[bag]) +
                           ": must be " + std::to_string(bag) +
                           ", because in a table without a combiner every bag has one key");
  }
  return {};
}

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

// Returns the bytes that the keys, weights and offsets of `samples` take in a request.
std::uint64_t PartBytes(const TableBatch& table, SampleRange samples) {
  const auto [keys, offsets, weights] = PartOf(table.checked, samples);
  return keys.size_bytes() + offsets.size_bytes() + weights.size_bytes();
}

// A batch of a call is cut by its size.
struct BatchSize {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // of the values, or of the keys, weights and offsets
};

// Each of a call's batches is cut into `parts` parts, and these go into about `requests` requests.
struct CutCounts {
  std::uint64_t requests = 1;
  std::uint64_t parts = 1;
};

// Returns how to cut a call's batches, which are usually of different tables. A batch that is alone has as
// many parts as there are requests.
CutCounts CountsFor(std::span<const BatchSize> batches, std::uint64_t ranks, std::uint64_t channels) {
  BatchSize all;
  BatchSize largest;
  std::uint64_t with_samples = 0;
  for (const BatchSize& batch : batches) {
    if (batch.samples == 0) continue;
    ++with_samples;
    all.samples += batch.samples;
    all.bytes += batch.bytes;
    largest.samples = std::max(largest.samples, batch.samples);
    largest.bytes = std::max(largest.bytes, batch.bytes);
  }
  if (with_samples == 0) return {};
  std::uint64_t wanted = all.bytes >= ranks * channels * kGoodRequest ? ranks * channels : ranks;
  wanted = std::max(wanted, DivideUp(all.bytes, kLargestRequest));
  wanted = DivideUp(wanted, ranks) * ranks;  // every rank gets the same number
  const std::uint64_t most = std::min({wanted, all.bytes / kLeastRequest, all.samples});
  const std::uint64_t requests = std::max<std::uint64_t>(1, most);
  const std::uint64_t parts =
      std::max(DivideUp(requests, with_samples), DivideUp(largest.bytes, kLargestRequest));
  return {requests, std::min(parts, largest.samples)};
}

// Cuts samples into parts, as even as possible; some are empty if there are more parts than samples.
std::vector<SampleRange> EvenParts(std::uint64_t samples, std::uint64_t parts) {
  std::vector<SampleRange> even(parts);
  for (std::uint64_t i = 0; i < parts; ++i) even[i] = {samples * i / parts, samples * (i + 1) / parts};
  return even;
}

// Halves every part that does not fit, until it fits or has one sample.
std::vector<SampleRange> HalveUntilFit(const std::vector<SampleRange>& parts,
                                       const std::function<bool(SampleRange)>& fits) {
  std::vector<SampleRange> fitting;
  std::vector<SampleRange> waiting(parts.rbegin(), parts.rend());
  while (!waiting.empty()) {
    const SampleRange part = waiting.back();
    waiting.pop_back();
    if (part.size() <= 1 || fits(part)) {
      fitting.push_back(part);
      continue;
    }
    const std::uint64_t middle = (part.first + part.last) / 2;
    waiting.push_back({middle, part.last});
    waiting.push_back({part.first, middle});
  }
  return fitting;
}

struct PieceSize {
  std::uint64_t weight = 0;      // as in BatchSize
  std::uint64_t in_message = 0;  // bytes in its request
};

// Puts pieces into requests, neighbours together: at most `requests` of them, about even in weight, but more
// where one would have above `room` bytes. A piece that has more alone is a request.
std::vector<Pieces> Group(const Pieces& pieces, std::uint64_t requests, std::uint64_t room,
                          const std::function<PieceSize(const Piece&)>& size_of) {
  std::uint64_t weight = 0;
  for (const Piece& piece : pieces) weight += size_of(piece).weight;
  weight = std::max<std::uint64_t>(1, weight);
  std::vector<Pieces> groups;
  std::uint64_t before = 0;  // the sum of the pieces before this one
  std::uint64_t latest = 0;  // the place of the last group, if the row were cut into `requests` even groups
  std::uint64_t in_message = 0;  // bytes of the last group
  for (const Piece& piece : pieces) {
    const PieceSize size = size_of(piece);
    // A piece belongs to the group in which its middle lies, if all pieces lie in a row that is cut evenly.
    const std::uint64_t place = std::min((2 * before + size.weight) * requests / (2 * weight), requests - 1);
    if (groups.empty() || place != latest || in_message + size.in_message > room) {
      groups.emplace_back();
      in_message = 0;
    }
    groups.back().push_back(piece);
    before += size.weight;
    in_message += size.in_message;
    latest = place;
  }
  return groups;
}

// Returns the bytes of the arrays that some samples of a table have in a request.
std::uint64_t ArrayBytes(const Batches& batches, DataType type, std::size_t index, SampleRange samples) {
  const TableBatch& table = batches.tables[index];
  return PartBytes(table, samples) + (batches.pushes ? ValueBytes(table, type, samples.size()) : 0);
}

// Returns the bytes that some samples of a table take in a round, in a lookup or a step.
std::uint64_t RoundBytes(const Batches& batches, std::size_t index, SampleRange samples) {
  const CheckedBatch& batch = batches.tables[index].checked;
  return (batches.pushes ? sizing::StepBytes : sizing::RoundBytes)(
      PartOf(batch, samples).keys.size(), samples.size() * batch.slots, batch.width / batch.slots,
      !batch.view.weights.empty());
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

// Refuses a piece that does not fit and was not cut further.
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

}  // namespace

BatchView PartOf(const CheckedBatch& batch, SampleRange samples) {
  const std::uint64_t first = samples.first * batch.slots;
  const std::uint64_t last = samples.last * batch.slots;
  const auto& [keys, offsets, weights] = batch.view;
  const std::uint64_t first_key = offsets.empty() ? first : offsets[first];
  const std::uint64_t count = (offsets.empty() ? last : offsets[last]) - first_key;
  return {.keys = keys.subspan(first_key, count),
          .offsets = offsets.empty() ? offsets : offsets.subspan(first, last - first + 1),
          .weights = weights.empty() ? weights : weights.subspan(first_key, count)};
}

Result<CheckedBatch> CheckBatchShape(const BatchView& batch, const TableOptions& table) {
  const std::uint32_t slots = table.slots;
  const std::uint64_t bags = batch.offsets.empty() ? batch.keys.size() : batch.offsets.size() - 1;
  const std::uint64_t samples = bags / slots;
  if (samples > std::numeric_limits<std::uint32_t>::max()) {
    return InvalidArgument("the batch has " + std::to_string(samples) + " samples, more than 32 bits count");
  }
  if (bags % slots != 0) {
    return InvalidArgument((batch.offsets.empty()
                                ? "keys has " + std::to_string(bags) + " keys without offsets"
                                : "offsets has " + std::to_string(bags + 1) + " elements") +
                           ", which is no whole number of samples of " + std::to_string(slots) + " slots");
  }
  if (!batch.weights.empty() && batch.weights.size() != batch.keys.size()) {
    return InvalidArgument("weights has " + std::to_string(batch.weights.size()) +
                           " elements: must have none, or " + std::to_string(batch.keys.size()) +
                           ", one for each key");
  }
  return CheckedBatch{.view = batch, .samples = samples, .slots = slots, .width = slots * table.dim};
}

Result<CheckedBatch> CheckBatch(const BatchView& batch, const TableOptions& table) {
  auto checked = CheckBatchShape(batch, table);
  if (!checked.ok()) return checked;
  const auto strange = std::ranges::find_if_not(batch.weights, [](float w) { return std::isfinite(w); });
  if (strange != batch.weights.end()) {
    return InvalidArgument("weights[" + std::to_string(strange - batch.weights.begin()) + "] is " +
                           std::to_string(*strange) + ": must be finite");
  }
  if (!batch.offsets.empty()) {
    if (Status status = Validate(batch, static_cast<std::uint32_t>(checked->samples), checked->slots);
        !status.ok())
      return status;
    if (Status status = CheckCombiner(batch.offsets, table.combiner); !status.ok()) return status;
  }
  return checked;
}

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

Status Cut(Batches& batches, const CutOptions& options) {
  const auto weight = [&](const TableBatch& table, SampleRange samples) {
    return std::max(ValueBytes(table, options.type, samples.size()), PartBytes(table, samples));
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
           ") were answered: their keys have rows, which hold initial values, and so may keys of other "
           "parts";
  } else if (!batches.requests.empty() && batches.tables.size() > 1) {
    more = "; keys of the call's other tables may have got rows, which hold initial values";
  }
  return refusal.InWords(refusal.message() + more);
}

}  // namespace slotwise::client
