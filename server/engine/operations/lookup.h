// Lookup: gathers the bags of all ranks, pools each bag's keys that this rank owns, and adds the ranks'
// partial sums on the rank that a bag came from.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_LOOKUP_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_LOOKUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "server/engine/operations/record_bytes.h"
#include "server/engine/operations/recorded_evictions.h"
#include "server/engine/schedule/request.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// The pooled values of a lookup, Numbers[samples · slots · dim]: a part of the round's output, whose memory
// `values` keeps. They lie in host memory, or at the lookup's `place`.
struct PooledValues {
  std::shared_ptr<const void> values;
  std::size_t size = 0;  // numbers
  DataType type = DataType::kFloat32;
  TableVersion version = {};  // of the table, as the rows were read

  std::size_t bytes() const { return size * BytesOf(type); }
  // REQUIRES: `type` is float32.
  std::span<const float> floats() const { return {static_cast<const float*>(values.get()), size}; }
};

struct LookupRequest {
  static constexpr Operation kOperation{0};
  static constexpr OperationClass kClass = OperationClass::kLookup;

  TableId table{0};
  LookupMode mode = LookupMode::kTrain;
  BatchPart batch;
  std::function<void(Result<PooledValues>)> done;
  DataType type = DataType::kFloat32;  // the answer's; each number is rounded once
  bool joined = false;                 // sent by LookupMany, whose lookups may share a round
  std::uint64_t answer_bytes = 0;      // of the answer's numbers; the engine fills it in
  // Where the answer goes. The client may write and read there at any time. Null: the engine's own memory.
  std::shared_ptr<std::byte[]> place = nullptr;
  bool place_on_device = false;  // whether `place` is device memory
  // The charge for the answer; it ends when the memory of the answer's numbers is freed.
  Reservation answer_reservation = {};
  Caller caller = {};
  std::function<void(const Status&)> refused_with_others = nullptr;

  void SizeAnswer(const TableOptions& of) {
    answer_bytes = std::uint64_t{batch.samples} * of.slots * of.dim * BytesOf(type);
  }
};

struct ReplayContext;
struct RoundContext;

namespace operations {

struct Lookup {
  using Request = LookupRequest;
  // The keys of a table that got rows on the rank, and what went for their sake.
  struct NewKeys {
    TableId table{0};
    std::span<const Key> keys;
    std::vector<RecordedEviction> evicted = {};  // before; of this table, at most one
  };
  using Record = std::vector<NewKeys>;
  static constexpr RecordKind kPlain{2};
  static constexpr RecordKind kWithEvictions{13};
  static constexpr std::array kRecords{kPlain, kWithEvictions};
  static constexpr bool kOverlaps = true;

  static void Run(RoundContext& context, const Round& round);
  // Has what a lookup of a table inserted on this rank.
  struct Inserted {
    TableId table{0};
    std::vector<Key> keys;
    std::vector<Eviction> evicted = {};  // before; of this table, at most one
  };
  static std::vector<JournalPiece> Write(std::vector<Inserted> tables, bool with_evictions = false);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_LOOKUP_H_
