// An Ask is a request of a simulated client, in types other than the engine's own, and a Reply is the answer.
// Only this file of the simulator knows how the engine's requests are made.
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

#include "server/engine/operations/alter_table.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/erase_rows.h"
#include "server/engine/operations/import_rows.h"
#include "server/engine/operations/list_keys.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/read_rows.h"
#include "server/engine/operations/remove_rows.h"
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
  std::vector<float> values = {};      // gradients or rows, whose numbers are exact in `type`
  DataType type = DataType::kFloat32;  // of a lookup's answer, or of a push's gradients on the wire
  StepId step = {};
  std::uint32_t body = 0;                  // of a push
  std::optional<float> rate_of_step = {};  // of a push
  bool joined = false;                     // one of several lookups in one call
  TableOptions options = {};
  TableAlteration alteration = {};
  bool with_digest = false;
  bool with_ages = false;
  bool with_state = false;
  std::uint64_t table_steps = 0;
  float learning_rate = 0;
  std::vector<Key> keys = {};  // kReadRows alone
  RemoveRequest::Asked remove = {};

  std::uint64_t answer_bytes = 0;  // kLookup alone
  bool placed = false;             // the lookup names the place of its answer

  // Returns whether the ask has bags of keys.
  bool has_batch() const;
  // Returns the bytes of arrays that the request queue is charged for.
  std::uint64_t bytes() const;
  std::string Describe() const;
};

struct Reply {
  Status status = {};
  PooledValues pooled = {};
  std::uint64_t number = 0;  // the number of rows erased or removed
  AppliedStep applied = {};
  CreatedTable created = {};
  AlteredTable altered = {};
  TableSummary summary = {};
  std::vector<Key> keys = {};
  RowRecords rows = {};
};

// Returns the ask's request. The request's `done` calls `done`.
Request RequestOf(const Ask& ask, std::function<void(Reply)> done);

// Returns whether `pooled` holds `numbers`, each rounded to the lookup's type.
bool IsAnswerOf(const Ask& ask, std::span<const float> numbers, const PooledValues& pooled);

// Returns whether a proposal in a header is that of an ask.
bool IsOf(const Proposal& proposal, const Ask& ask);

std::string NameOf(Operation operation);

std::vector<std::uint64_t> KeysIn(const test::Batch& batch);
// Returns the batches of a step's parts, concatenated, and appends their gradients to `gradients`.
test::Batch Joined(std::span<const Ask* const> parts, std::vector<float>& gradients);

// The clients of both simulations draw from the functions below.
test::Batch DrawBatch(test::Random& random, const TableOptions& options, std::uint32_t samples,
                      std::uint64_t distinct_keys);
std::vector<std::uint64_t> DrawKeys(test::Random& random, std::uint64_t distinct_keys);
// Draws small whole numbers if `whole` is set, and else thousandths from -1 to 1.
std::vector<float> DrawValues(test::Random& random, std::size_t count, bool whole);
// Makes an import of these keys, with values from DrawValues and often with the optimizer's state.
void DrawImport(test::Random& random, const TableOptions& options, const std::vector<std::uint64_t>& keys,
                bool whole, Ask& import);
// Draws an admission of any kind, with few keys to count, or a Bloom counter of few MiB.
AdmissionOptions DrawAdmission(test::Random& random);
// Chooses the type of rows, and how steps round to it, by the seed of initial values: nothing is drawn, so
// that seeds play what they played before tables had such types.
void ChooseRowType(TableOptions& options);
// Draws an eviction by any score.
EvictionOptions DrawEviction(test::Random& random);
// Draws an alteration of such a table, of any of its options; of the time to live only if `may_expire`.
// Nothing is drawn from the clients' numbers: they play what they played before tables could be altered.
TableAlteration DrawAlteration(std::uint64_t seed, const TableOptions& options, bool may_expire);
// Makes a request to remove rows of such a table.
void DrawRemove(test::Random& random, const TableOptions& options, Ask& remove, bool may_sweep = true);
// Rounds a push's gradients to numbers that its type can represent.
void RoundGradients(Ask& push);
// Sets the number of bytes of a lookup's answer.
void SetAnswerBytes(const TableOptions& options, Ask& lookup);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_ASKS_H_
