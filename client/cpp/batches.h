// Checks the batches of one call against their tables, cuts them into parts, puts the parts into requests,
// and counts the answered requests. The parts decide the order in which the server sums gradients, so another
// way of cutting would change the bytes of tables.
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
using Pieces = std::vector<Piece>;  // usually the pieces of one request

// A batch that CheckBatch has checked against its table.
struct CheckedBatch {
  BatchView view;
  std::uint64_t samples = 0;
  std::uint32_t slots = 1;
  std::uint32_t width = 0;  // elements per sample: slots · dim
};

// Returns INVALID_ARGUMENT unless the lengths of the batch's arrays give a whole number of the table's
// samples. Does not read the arrays.
Result<CheckedBatch> CheckBatchShape(const BatchView& batch, const TableOptions& table);

// Returns INVALID_ARGUMENT, with field, place and value, unless the batch is a whole number of the table's
// samples, has finite weights, and, if the table has no combiner, has one key in each bag.
Result<CheckedBatch> CheckBatch(const BatchView& batch, const TableOptions& table);

// Returns the arrays of some samples of a checked batch. Its offsets are those of the whole batch, so they do
// not begin at 0.
BatchView PartOf(const CheckedBatch& batch, SampleRange samples);

struct DistinctKeys;

// One batch of a call. A lookup has `out`; a push has `gradients`.
struct TableBatch {
  std::string table;
  BatchView view;
  std::span<float> out = {};
  std::span<const float> gradients = {};
  CheckedBatch checked = {};  // once the table's options are known
  TableState before = {};     // acknowledged when the call began; instance 0: unknown
  // In a push, the state of the table that the client read the rows from; generation 0: unknown.
  TableState looked_up = {};
  std::optional<float> learning_rate = {};  // in a push: the rate of this step alone
  // Set if each key is sent once. Then `view` and `checked` describe the distinct keys, and `out` is the
  // beginning of `caller_out`.
  std::shared_ptr<const DistinctKeys> distinct = nullptr;
  std::span<float> caller_out = {};
};
using TableBatches = std::vector<TableBatch>;

// The part of a call's state that exists if its arrays lie in a GPU's memory.
struct GpuBatches {
  std::string gpu;  // RankInfo.gpu
  OnDevice of;
  std::vector<const void*> gradients = {};  // by table, of the call's data type
  std::vector<bool> wide = {};              // by table: the batch's offsets have 64 bits
  std::vector<GpuRows> rows = {};           // by table, once a lookup is answered
};

// The state of one call, which its callbacks share.
struct Batches {
  TableBatches tables;
  bool pushes = false;
  std::vector<Pieces> requests = {};          // the pieces of each, once the batches are cut
  std::shared_ptr<GpuBatches> gpu = nullptr;  // null: the arrays lie in the host's memory
  std::uint64_t known_start = 0;              // the server instance that the client knew when the call began
  std::vector<Answer> answers = {};           // by request; set when the request's reply is read

  // Returns whether the call is of several tables. Then one message holds many, and errors name the table.
  bool many() const { return tables.size() != 1; }
};

// Checks every batch against its table's options. INVALID_ARGUMENT names field and value.
Status Check(Batches& batches, const std::vector<TableOptions>& options);

struct CutOptions {
  DataType type = DataType::kFloat32;  // the data type of values and gradients on the wire
  std::uint64_t ranks = 1;
  std::uint64_t channels = 1;  // per rank
  std::uint64_t parts = 0;     // per table, as even as possible; 0: as many as the batches need
  ServerLimits limits = {};
};

// Cuts checked batches into `batches.requests`; each request fits into a message. Every rank gets a request
// if the batches are large enough together. Every channel gets one if the requests are then still large
// enough. On average a request has at most 4 MiB. The number of parts is the smallest that fills the requests
// and keeps each part at most 4 MiB (unless one sample is larger), because each part costs time. A part of a
// lookup fits into a round; all parts of a push fit into one round together, because a step is applied in
// one. A push has the same number of parts for each table; some may be empty. RESOURCE_EXHAUSTED, which names
// the limit: a sample, a part or a step cannot fit, and nothing was sent.
Status Cut(Batches& batches, const CutOptions& options);

// Makes one request of the whole batches, for arrays that the host cannot read. Each table gets `parts`
// pieces; all but the first are empty.
void PutTogether(Batches& batches, std::uint64_t parts);

// Counts the answered requests of a lookup. Error messages call these requests the lookup's parts.
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

// Adds to the refusal of a TRAIN lookup how much of the lookup was answered, if the lookup was cut or has
// several tables. A refused lookup of one table in one request, or one that was not sent, has changed
// nothing.
Status WithAnsweredParts(const Status& refusal, const Batches& batches, const AnsweredParts& answered);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BATCHES_H_
