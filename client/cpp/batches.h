// The batches of one call: checks them against their tables, cuts them into parts, puts the parts into
// requests, and counts which requests were answered. The part that a gradient is in decides the order in
// which the server sums it, so another rule would make tables of other bytes.
// Thread-safety: plain values and free functions; AnsweredParts is safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_BATCHES_H_
#define SLOTWISE_CLIENT_CPP_BATCHES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/call.h"
#include "client/cpp/gpu_shared_buffer.h"
#include "client/cpp/table_states.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/gpu.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise::client {

// Samples [first, last) of a batch.
struct SampleRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  std::uint64_t size() const { return last - first; }
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// A part of one of a call's batches.
struct Piece {
  std::size_t table = 0;   // the batch's place in the call
  std::uint64_t part = 0;  // the part's place in the batch
  SampleRange samples;

  friend bool operator==(const Piece&, const Piece&) = default;
};
using Pieces = std::vector<Piece>;  // usually those of one request

// A batch that CheckBatch has checked against its table.
struct CheckedBatch {
  BatchView view;
  std::uint64_t samples = 0;
  std::uint32_t slots = 1;
  std::uint32_t width = 0;  // elements a sample: slots · dim
};

// Returns INVALID_ARGUMENT unless `batch` is a whole number of a table's samples, by its arrays' lengths; the
// arrays are not looked at.
Result<CheckedBatch> CheckBatchShape(const BatchView& batch, const TableOptions& table);

// Returns INVALID_ARGUMENT, with field, place and value, unless `batch` is a whole number of a table's
// samples, has finite weights, and, if the table has no combiner, one key in each bag.
Result<CheckedBatch> CheckBatch(const BatchView& batch, const TableOptions& table);

// Returns the arrays of some samples of a checked batch. Its offsets are the batch's, so they begin at the
// place of the first key.
BatchView PartOf(const CheckedBatch& batch, SampleRange samples);

struct DistinctKeys;

// A table's part of a call. A lookup has `out`, a push `gradients`.
struct TableBatch {
  std::string table;
  BatchView view;
  std::span<float> out = {};
  std::span<const float> gradients = {};
  CheckedBatch checked = {};  // once the table's options are known
  TableState before = {};     // what was acknowledged when the call began; no server instance: nobody knows
  // Of a push: what the rows were read of that the gradients are of; generation 0: nobody knows.
  TableState looked_up = {};
  std::optional<float> learning_rate = {};  // of a push: of this step alone
  // If each key is sent once: the keys that are sent, which `view` and `checked` are of, and all of the
  // caller's `out`, of which `out` is the beginning.
  std::shared_ptr<const DistinctKeys> distinct = nullptr;
  std::span<float> caller_out = {};
};
using TableBatches = std::vector<TableBatch>;

// Tells of a call whose arrays lie in the memory of a GPU.
struct GpuBatches {
  std::string gpu;  // RankInfo.gpu
  OnDevice of;
  std::vector<const void*> gradients = {};  // by table, of the call's type on the wire
  std::vector<bool> wide = {};              // by table: the batch's offsets have 64 bits
  std::vector<GpuRows> rows = {};           // by table, once a lookup is answered
};

// The state of one call, which its callbacks share.
struct Batches {
  TableBatches tables;
  bool pushes = false;
  std::vector<Pieces> requests = {};          // the pieces of each, once the batches are cut
  std::shared_ptr<GpuBatches> gpu = nullptr;  // null: the arrays lie in the host's memory
  std::uint64_t known_start = 0;     // the server instance that the client had met when the call began
  std::vector<Answer> answers = {};  // to each request; whoever reads a request's reply sets it

  // Returns whether the call is of several tables: then a message is of many messages, and errors name the
  // table.
  bool many() const { return tables.size() != 1; }
};

// Checks every batch against its table's options. INVALID_ARGUMENT names field and value.
Status Check(Batches& batches, const std::vector<TableOptions>& options);

struct CutOptions {
  DataType type = DataType::kFloat32;  // of values and gradients on the wire
  std::uint64_t ranks = 1;
  std::uint64_t channels = 1;  // to a rank
  std::uint64_t parts = 0;     // of each table, as even as possible; 0: as many as the batches need
  ServerLimits limits = {};
};

// Cuts checked batches into `batches.requests`, of which each fits into a message. Every rank gets a request
// if the batches are large enough together, and every channel gets one if the requests are then still of a
// good size; requests have at most 4 MiB on average. Parts: the fewest that fill that many requests and
// keep each part at most 4 MiB, unless one sample is larger, because each part costs time. A part of a
// lookup fits into a round; a step is applied in one round, so all parts of a push must fit into a round
// together. A push has the same number of parts of each table, some of which may be empty. RESOURCE_EXHAUSTED
// names the limit if a sample, a part or a step cannot fit; nothing has been sent then.
Status Cut(Batches& batches, const CutOptions& options);

// Makes one request of the batches, whole, with so many pieces of each table, of which all but the first are
// empty. For arrays that the host cannot read.
void PutTogether(Batches& batches, std::uint64_t parts);

// Counts the requests of a lookup that were answered, which callers are told of as the lookup's parts.
class AnsweredParts {
 public:
  void Add(const Pieces& request) {
    for (const Piece& piece : request) samples_ += piece.samples.size();
    ++parts_;
  }
  std::uint64_t parts() const { return parts_; }
  std::uint64_t samples() const { return samples_; }

 private:
  std::atomic<std::uint64_t> parts_{0};
  std::atomic<std::uint64_t> samples_{0};
};

// Adds to a TRAIN lookup's refusal how much of the lookup was answered all the same, if the client had cut it
// or it was for several tables. A lookup of one table that was one request, or was not sent, has changed
// nothing.
Status WithAnsweredParts(const Status& refusal, const Batches& batches, const AnsweredParts& answered);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BATCHES_H_
