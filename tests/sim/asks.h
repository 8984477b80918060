// Asks: the requests of the simulated clients, kept apart from the engine's own types, how they are drawn,
// and what is answered to them.
//
// This is the one place of the simulator that knows how the engine's requests are made.
// Thread-safety: plain values.
#ifndef SLOTWISE_TESTS_SIM_ASKS_H_
#define SLOTWISE_TESTS_SIM_ASKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/engine/operations/create_table.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/erase_rows.h"
#include "server/engine/operations/import_rows.h"
#include "server/engine/operations/list_keys.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/read_rows.h"
#include "server/engine/operations/set_learning_rate.h"
#include "server/engine/operations/summarize.h"
#include "server/engine/schedule/request.h"
#include "server/engine/schedule/request_queue.h"
#include "tests/support/batches.h"

namespace slotwise::sim {

struct Ask {
  std::string caller = "unnamed";
  Operation operation = LookupRequest::kOperation;
  TableId table{0};
  LookupMode mode = LookupMode::kTrain;
  std::uint32_t samples = 0;
  test::Batch batch = {};
  std::vector<float> values = {};      // gradients, or rows: numbers that `type` has
  DataType type = DataType::kFloat32;  // of a lookup's answer, or of a push's gradients on their way
  StepId step = {};
  std::uint32_t body = 0;                  // of a push
  std::optional<float> rate_of_step = {};  // of a push
  bool joined = false;                     // a lookup of several of one call
  TableOptions options = {};
  bool with_digest = false;
  bool with_state = false;
  std::uint64_t table_steps = 0;
  float learning_rate = 0;
  std::vector<Key> keys = {};  // kReadRows

  std::uint64_t answer_bytes = 0;  // kLookup
  bool placed = false;             // the lookup says where its answer goes

  // Whether it brings bags of keys.
  bool has_batch() const;
  // Bytes of arrays, which the request queue is charged for.
  std::uint64_t bytes() const;
  std::string Describe() const;
};

struct Reply {
  Status status = {};
  PooledValues pooled = {};
  std::uint64_t number = 0;  // how many rows were erased
  AppliedStep applied = {};
  CreatedTable created = {};
  TableSummary summary = {};
  std::vector<Key> keys = {};
  RowRecords rows = {};
};

// The ask's request, whose `done` calls `done`.
Request RequestOf(const Ask& ask, std::function<void(Reply)> done);

// Whether `pooled` is what the lookup asked for: these numbers, each rounded to its type.
bool IsAnswerOf(const Ask& ask, std::span<const float> numbers, const PooledValues& pooled);

// Of a header's proposal and an ask, whether the one is of the other.
bool IsOf(const Proposal& proposal, const Ask& ask);

std::string NameOf(Operation operation);

std::vector<std::uint64_t> KeysIn(const test::Batch& batch);
// Returns the batches of a step's parts behind each other, and appends their gradients to `gradients`.
test::Batch Joined(std::span<const Ask* const> parts, std::vector<float>& gradients);

// What the clients of both simulations draw.
test::Batch DrawBatch(test::Random& random, const TableOptions& options, std::uint32_t samples,
                      std::uint64_t distinct_keys);
std::vector<std::uint64_t> DrawKeys(test::Random& random, std::uint64_t distinct_keys);
// `whole`: small whole numbers; else thousandths, from -1 to 1.
std::vector<float> DrawValues(test::Random& random, std::size_t count, bool whole);
// Makes an import of these keys, with values of `DrawValues`, and often with the optimizer's state.
void DrawImport(test::Random& random, const TableOptions& options, const std::vector<std::uint64_t>& keys,
                bool whole, Ask& import);
// Rounds a push's gradients to what its type can say.
void RoundGradients(Ask& push);
// Sets how many bytes a lookup's answer has.
void SetAnswerBytes(const TableOptions& options, Ask& lookup);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_ASKS_H_
