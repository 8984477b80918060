// The batches of one call: checks them against their tables, cuts them into requests, and counts which
// requests were answered.
// Thread-safety: plain values and free functions; AnsweredParts is safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_BATCHES_H_
#define SLOTWISE_CLIENT_CPP_BATCHES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/call.h"
#include "client/cpp/cut.h"
#include "client/cpp/distinct_keys.h"
#include "client/cpp/gpu_arena.h"
#include "client/cpp/messages.h"
#include "slotwise/gpu.h"

namespace slotwise::client {

// A table's part of a call. A lookup has `out`, a push `gradients`.
struct TableBatch {
  std::string table;
  BatchView view;
  std::span<float> out;
  std::span<const float> gradients;
  CheckedBatch checked;    // once the table's options are known
  TableState before = {};  // what was acknowledged when the call began
  // Of a push: what the rows were read of that the gradients are of; lineage 0: nobody knows.
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
  std::uint64_t known_start = 0;              // the incarnation that the client had met when the call began
  std::vector<Answer> answers = {};           // to each request; whoever reads a request's reply sets it

  // Returns whether the call is of several tables: then a message is of many messages, and errors name the
  // table.
  bool many() const { return tables.size() != 1; }
};

// Checks every batch against its table's options. INVALID_ARGUMENT names field and value.
Status Check(Batches& batches, const std::vector<TableOptions>& options);

// Replaces batches of a checked lookup, before it is cut, by their distinct keys, where that pays: where bags
// have one key each, without weights, and enough keys are repeated. The row of such a bag is the same
// wherever its key stands. With several slots some repeated keys stay, because samples are sent whole.
void SendEachKeyOnce(Batches& lookups);

// Copies the rows of distinct keys to all places of the callers' arrays where the keys were. Is called once
// all requests are answered.
void CopyRepeatedRows(const Batches& lookups);

struct CutOptions {
  DataType type = DataType::kFloat32;  // of values and gradients on the wire
  std::uint64_t ranks = 1;
  std::uint64_t channels = 1;  // to a rank
  std::uint64_t parts = 0;     // of each table, as even as possible; 0: as many as the batches need
  ServerLimits limits = {};
};

// Cuts checked batches into `batches.requests`, of which each fits into a message. A part of a lookup fits
// into a round; a step is applied in one round, so all parts of a push must fit into a round together. A
// push has the same number of parts of each table, some of which may be empty. RESOURCE_EXHAUSTED names the
// limit if a sample, a part or a step cannot fit; nothing has been sent then.
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
