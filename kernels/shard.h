// Shard: one table's slice on one device, and Device: the memory, the threads and the streams of work it
// lives on.
//
// This header is all that the rest of Slotwise knows of the kernels. Calls are virtual, once a batch and
// never once a key; the same algorithms (kernels/body) run behind them on every backend, and give the same
// bytes.
//
// A batch goes through a shard in this order; the stops between are where ranks agree:
//
//     Prepare(batch)  keeps the keys this rank owns and finds their rows; nothing changes
//     ExactNewRows()  only if asked: how many rows Insert would add, without counting a key twice
//     Insert()        gives absent keys rows (TRAIN, push and import)
//     Pool(out)       any number of times, then Update(gradients, scalars) or Assign(values) at most once
//
// A push begins with PreparePush(batch) instead. Prepare, PreparePush and Insert wait for the device, which
// tells how many keys are new; each of them is a Begin, which does not wait, and a Finish. Who begins what
// several tables do, and then finishes it, waits about once for all of them.
//
// With several ranks, PlanTraffic(bags_of, plan) behind Prepare lets only those bags travel that a rank has
// keys of:
//
//     PoolToSend(plan, out), then AddReceived(stream, plan, received, mine) of what all ranks sent
//     GradientsToSend(plan, gradients, out), then UpdateFromReceived(plan, received, scalars)
//
// A batch of keys to erase goes: Prepare(batch, false), PrepareErase(), Erase(). Keys(), Read(keys) and
// Load(keys, records) need no batch.
//
// A snapshot goes: BeginSnapshot(options), ReadSnapshot(rows) any number of times, EndSnapshot(kept), with
// batches between. While it is open, SavePreimages() comes before whatever changes rows.
//
// Several shards of one device may each be in the middle of a batch.
// Pointers into "device memory" come from Device::Allocate of the same device (on the CPU, any host memory
// will do). Arrays of floats, and Numbers, begin at a multiple of 16 bytes where dim is a multiple of 4.
// Thread-safety: a Device, its streams and its shards belong to one thread at a time, but for AllocateHost,
// MakeArrivals and MakeArena.
// Device outlives its streams and shards.
// Update, UpdateFromReceived, Assign and Erase spend the batch: what needs its rows after that throws
// std::logic_error, as does any call that comes before those that it REQUIRES.
// Errors: a Status for what can happen to a healthy program (no room for rows); std::runtime_error for a
// broken device, and std::bad_alloc where a call below says so: a rank that sees either of those cannot go
// on.
#ifndef SLOTWISE_KERNELS_SHARD_H_
#define SLOTWISE_KERNELS_SHARD_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/arrivals.h"
#include "kernels/hash_secret.h"
#include "kernels/snapshot.h"
#include "kernels/stream.h"
#include "slotwise/batch.h"
#include "slotwise/probe_lengths.h"
#include "slotwise/sizing.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// While an ExactGrowth exists, tables take memory for the rows that they get, and for none ahead. A server
// that starts again has to hold what it held before in the same memory, and what one table took ahead might
// be what another one's rows need.
// Thread-safety: safe from any thread. Concerns all devices of the process.
class ExactGrowth {
 public:
  ExactGrowth() { ++scopes_; }
  ~ExactGrowth() { --scopes_; }
  ExactGrowth(const ExactGrowth&) = delete;
  ExactGrowth& operator=(const ExactGrowth&) = delete;

  static bool IsAsked() { return scopes_ > 0; }

 private:
  inline static std::atomic<int> scopes_ = 0;
};

// Keys fall into kBuckets buckets by their hash; a map of buckets to ranks says who owns them.
inline constexpr std::uint32_t kBuckets = sizing::kBuckets;
using BucketMap = std::array<std::uint16_t, kBuckets>;

// Returns the bucket of a key (docs/semantics.md).
std::uint32_t BucketOf(Key key);

// Bucket b of `ranks` ranks belongs to rank b · ranks / kBuckets. REQUIRES: 1 <= ranks <= kBuckets.
BucketMap EvenBucketMap(int ranks);

// The rank that a slice belongs to, among how many, and which keys each of them owns.
struct ShardPlace {
  Rank rank{0};
  int ranks = 1;
  BucketMap bucket_map = EvenBucketMap(1);
  HashSecret secret;                          // of this rank's hash tables; never shows in an answer
  std::uint64_t max_rows = kMaxRowsPerShard;  // the most that the rank may hold, beside the table's max_rows
};

// The numbers of one optimizer step that the optimizer's options alone do not give.
struct StepScalars {
  float learning_rate = 0;
  // Adam: lr · √(1 − β₂ᵗ) / (1 − β₁ᵗ), computed in double and rounded once.
  float adam_rate = 0;
  // Adam: ε, times √(1 − β₂ᵗ) if it is that of the corrected v; likewise rounded.
  float adam_epsilon = 0;
  // Adam: what a row's weights are multiplied by first: 1 − lr · weight_decay if that is decoupled, or 1.
  float adam_keep = 1;
};

// Returns the optimizer's learning rate at that step, by its schedule: computed in double, rounded once.
// REQUIRES: step >= 1.
float LearningRateOfStep(const OptimizerOptions& optimizer, std::uint64_t step);

// Returns the numbers of that step. REQUIRES: step >= 1, the table's count of steps with this one.
StepScalars ScalarsOfStep(const OptimizerOptions& optimizer, std::uint64_t step);

// How many rows Insert would add: exactly, or at most.
struct NewRows {
  std::uint64_t count = 0;
  bool exact = true;
};

// What a batch is prepared for: keys without a row stay so, or get one; or for a push (Shard::PreparePush).
enum class PrepareFor : std::uint8_t { kFind, kInsert, kPush };

// Sums (modulo 2^64) over rows of two independent hashes of (key, row, optimizer state).
struct DigestSums {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const DigestSums&, const DigestSums&) = default;
};

// How many bags travel between this rank and each rank, itself too.
struct BagTraffic {
  // [ranks] Of that rank's bags, those with keys on this rank: their partial sums leave, their gradients
  // come.
  std::vector<std::size_t> with_keys_here;
  // [ranks] Of this rank's bags, those with keys on that rank: their partial sums come, their gradients
  // leave.
  std::vector<std::size_t> with_keys_there;
};

// Which bags of one batch travel between the ranks, and where each lies on its ways: see Shard::PlanTraffic.
// A plan is made by the device once and filled for batch after batch; all that a batch's traffic needs in
// memory is the plan's own, so plans of several batches may be in use at once.
// Thread-safety: the device's. The device outlives its plans. A plan's end does not wait: the work that reads
// it has to be done.
class TrafficPlan {
 public:
  // A plan is for at most so many ranks.
  static constexpr int kMostRanks = 64;

  virtual ~TrafficPlan() = default;
  TrafficPlan(const TrafficPlan&) = delete;
  TrafficPlan& operator=(const TrafficPlan&) = delete;

  // REQUIRES: Shard::PlanTraffic has filled the plan. How many bags travel; waits until the device has
  // counted them, and for nothing that was asked of the device after that.
  virtual const BagTraffic& Traffic() = 0;

 protected:
  TrafficPlan() = default;
};

struct ShardUsage {
  std::uint64_t rows = 0;
  std::uint64_t cells = 0;  // places of the hash table, taken or free
  std::uint64_t bytes = 0;  // device memory in use for hash table and rows
  // Of optimizer steps since the shard was made: this rank's keys, each as often as it occurred, and the rows
  // that a step updated.
  std::uint64_t step_keys = 0;
  std::uint64_t step_rows = 0;
};

// Rows as they are kept, in host memory: dim values, then the optimizer's StateFloats(kind, dim).
struct RowRecords {
  std::vector<Key> keys;
  std::vector<float> records;  // [keys][dim + state]
};

class Shard {
 public:
  // Update keeps at most one partial sum, a row of floats, for so many keys of the batch: a row of n > 32
  // occurrences takes one for each block of its tree (docs/semantics.md), and 33 occurrences make 3 blocks.
  static constexpr std::uint64_t kKeysAPartialSum = sizing::kKeysAPartialSum;

  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Takes the keys of `batch` that this rank owns and finds their rows. With `insert`, also makes room for
  // the rows that Insert would add and says how many they are; without, keys without a row stay so and count
  // as zeros. The batch's arrays lie in device memory and must stay there until Pool or Update.
  // RESOURCE_EXHAUSTED: no memory for the batch or its new rows, or more than kMaxRowsPerShard; the table is
  // as it was. There may be no room for rows that would take the slice past its place's or the table's
  // max_rows: their number is exact then, and the ranks have to refuse the batch.
  Result<NewRows> Prepare(const BatchView& batch, bool insert) {
    BeginPrepare(batch, insert ? PrepareFor::kInsert : PrepareFor::kFind);
    return FinishPrepare();
  }

  // Prepares a push: works as Prepare with `insert`, but that the keys of a bag whose divisor is 0
  // (docs/semantics.md) do not count as occurrences. Such a bag is empty for all calls that follow; what is
  // pooled is pooled without it.
  Result<NewRows> PreparePush(const BatchView& batch) {
    BeginPrepare(batch, PrepareFor::kPush);
    return FinishPrepare();
  }

  // BeginPrepare begins what Prepare does, or PreparePush: it waits only for the weights of a push to a table
  // that divides by them. FinishPrepare, which comes next, waits unless the batch is for kFind, and returns
  // what Prepare returns.
  virtual void BeginPrepare(const BatchView& batch, PrepareFor purpose) = 0;
  virtual Result<NewRows> FinishPrepare() = 0;

  // REQUIRES: a prepared batch. Returns the exact number of rows that Insert would add. Throws
  // std::bad_alloc.
  virtual std::uint64_t ExactNewRows() = 0;

  // REQUIRES: a batch of PreparePush, or of Prepare with `insert`; not inserted yet. Gives its absent keys
  // rows with their first values. Cannot fail: the batch was prepared with room for them.
  void Insert() {
    BeginInsert();
    FinishInsert();
  }
  // The two halves of Insert: the second one waits, if there were absent keys.
  virtual void BeginInsert() = 0;
  virtual void FinishInsert() = 0;

  // REQUIRES: a prepared batch, inserted if it was prepared with `insert`. Writes, for every bag of it, the
  // sum of the rows (times weights) of this rank's keys in key order: [bags][dim], zeros where a bag has no
  // key here. Sums are float32, and each is rounded once to partial.type as it is written.
  virtual void Pool(Numbers partial) = 0;
  // The same of bags [first, last) alone: [last - first][dim].
  virtual void PoolRange(std::uint32_t first, std::uint32_t last, Numbers partial) = 0;

  // Does the combiner's last step, over bags whose partial sums of all ranks are added: divides values[b][j]
  // by the divisor of mean or sqrtn of bag b (docs/semantics.md), and does nothing for the other combiners.
  // `offsets` are those bags', counted from the keys that `weights` belong to (null: all 1); all arrays lie
  // in device memory. Does not touch the prepared batch, and takes its place in the order of `stream`.
  virtual void DivideBags(Stream& stream, std::span<const std::uint32_t> offsets, const float* weights,
                          float* values) = 0;

  // REQUIRES: a batch that was prepared and inserted; by PreparePush, unless no bag that has keys has the
  // divisor 0. `gradients`, float[bags][dim] in device memory, are
  // those of the loss by the pooled values. Weighs and divides gradients as the combiner did, sums each row's
  // over its occurrences, in blocks of 32, and applies the optimizer once a row. Spends the batch.
  // Throws std::bad_alloc for want of scratch, before any row has moved.
  virtual void Update(const float* gradients, const StepScalars& scalars) = 0;

  // What Update does first, and waits for, needs no gradients. GroupRows and then PlanSums may do it before:
  // then Update of several shards waits about as often as of one. GroupRows does not wait; PlanSums waits for
  // it, and Update for PlanSums. REQUIRES, of GroupRows: as Update, which comes next of all calls that need
  // the batch's rows. Of PlanSums: GroupRows. Throws std::bad_alloc, as Update does.
  virtual void GroupRows() = 0;
  virtual void PlanSums() = 0;

  // REQUIRES: a prepared batch; `bags_of` are the ranks' bags of the batch, in rank order; there are at most
  // TrafficPlan::kMostRanks ranks; ranks times the most bags of a rank fits in 32 bits. Begins to fill `plan`
  // with the traffic of the batch: does nothing if `plan` is the batch's already. Throws std::bad_alloc.
  virtual void PlanTraffic(std::span<const std::size_t> bags_of, TrafficPlan& plan) = 0;

  // REQUIRES: `plan` is the prepared batch's. Pools, as Pool does, the bags of which this rank owns keys:
  // [Σ with_keys_here][dim], at most all bags.
  virtual void PoolToSend(TrafficPlan& plan, Numbers partial) = 0;

  // REQUIRES: `plan` was filled by this shard. `received` is what all ranks' PoolToSend wrote for this rank,
  // in rank order, [Σ with_keys_there][dim]. Writes the sums of this rank's bags, float[bags_of[rank]][dim],
  // added in float32 from +0. Takes its place in the order of `stream`; `plan` must not be filled again
  // before the stream has done this. Does not touch the prepared batch.
  virtual void AddReceived(Stream& stream, const TrafficPlan& plan, ConstNumbers received, float* sums) = 0;

  // REQUIRES: `plan` is the prepared batch's. Writes each row of `gradients`, float[bags_of[rank]][dim], once
  // for each rank that owns keys of the bag: float[Σ with_keys_there][dim], in rank order.
  virtual void GradientsToSend(TrafficPlan& plan, const float* gradients, float* sent) = 0;

  // REQUIRES: as Update; `plan` is the prepared batch's. Updates by what all ranks' GradientsToSend wrote for
  // this rank, in rank order: float[Σ with_keys_here][dim]. Spends the batch.
  virtual void UpdateFromReceived(TrafficPlan& plan, const float* received, const StepScalars& scalars) = 0;

  // REQUIRES: a batch of one key a bag that was prepared and inserted. `values` is float[bags][columns] in
  // device memory: `columns` is dim, and the rows' state becomes that of new rows, or the whole record. Of
  // repeated keys the last one counts. Spends the batch. Throws std::bad_alloc, before any row has moved.
  virtual void Assign(const float* values, std::uint32_t columns) = 0;

  // REQUIRES: a prepared batch. Makes room to remember the rows that Erase sets free. RESOURCE_EXHAUSTED if
  // it cannot.
  virtual Status PrepareErase() = 0;

  // REQUIRES: PrepareErase. Forgets the batch's keys; returns how many of them had a row. Spends the batch.
  virtual std::uint64_t Erase() = 0;

  // Returns the sums over this shard's rows. Throws std::bad_alloc.
  virtual DigestSums Digest() = 0;
  virtual ShardUsage Usage() const = 0;

  // Returns how far searches for keys of this rank went, as a histogram that only grows. At most 256 keys, at
  // even distances, are sampled of the first batch that brings keys, of the first after each time that the
  // hash table was made anew, and of every 1024th after a sample. Keys are searched for as Prepare finds the
  // table: new ones are absent, and erased ones end a search while their cells are dead. Does not wait: what
  // has not come to the host yet, as all has after Device::Wait, is counted in a later call.
  virtual const ProbeLengths& SampledProbes() = 0;

  // Returns every key, in no order. Throws std::bad_alloc.
  virtual std::vector<Key> Keys() = 0;

  // Returns the records of those of `keys` (in host memory) that have a row here, in their order. Throws
  // std::bad_alloc.
  virtual RowRecords Read(std::span<const Key> keys) = 0;

  // REQUIRES: the last batch that was prepared was inserted. Returns the keys that its Insert gave rows, in
  // no order. Waits. Throws std::bad_alloc.
  virtual std::vector<Key> InsertedKeys() = 0;

  // From now on remembers which rows change and which keys are erased, for snapshots of changes: none have,
  // as yet. Takes a byte of device memory a row, and 8 bytes of host memory an erased key; past `max_erased`
  // of those, snapshots of changes are refused until one of all rows is kept. REQUIRES: no snapshot is open.
  // RESOURCE_EXHAUSTED: no memory, and what was remembered still is.
  virtual Status TrackChanges(std::uint64_t max_erased) = 0;

  // Begins a snapshot: the rows as they are now, between two batches, to be read piece by piece while later
  // batches change them. Takes four bytes of device memory a row, and options.max_preimage_bytes or less,
  // which the shard keeps for the next snapshot. Waits. REQUIRES: no snapshot is open.
  // FAILED_PRECONDITION: options.changed_only, and changes are not known. RESOURCE_EXHAUSTED: no memory. In
  // both cases nothing has changed.
  virtual Result<SnapshotInfo> BeginSnapshot(const SnapshotOptions& options) = 0;

  // REQUIRES: rows of the open snapshot, each of which is asked for at most once. Writes the rows' records as
  // they were when the snapshot began, float[rows][dim + state]. `rows` and `host_records` lie in host memory
  // and stay in use until stream.Wait(). The rows are collected in the order of the shards' work, and of
  // `stream`, which brings them to the host: ask again once `stream` is done, or the shards' work waits for
  // it. All of a snapshot is read by one stream. Throws std::bad_alloc, with nothing read.
  virtual void ReadSnapshot(Stream& stream, std::span<const RowIndex> rows, float* host_records) = 0;

  // REQUIRES: if a snapshot is open: a prepared batch, inserted if it was prepared with `insert`, and not
  // spent. Saves those of its rows that the open snapshot still has to read, so that the batch may change
  // them. Returns how many rows more would have to have room: if any, none were saved, and the caller reads
  // more of the snapshot, whose rows make room or need no more, and asks again. Reading all of it always
  // helps. Update, UpdateFromReceived, Assign and Erase do this themselves, and throw std::logic_error, with
  // nothing changed, if there is no room. Waits if a snapshot is open. Throws std::bad_alloc.
  virtual std::uint64_t SavePreimages() = 0;

  // REQUIRES: a snapshot is open. Returns how many rows more could be saved now. Waits.
  virtual std::uint64_t PreimageRoom() = 0;

  // REQUIRES: a snapshot is open; the stream that read it is done. Ends it, whether all was read or not. If
  // it was to be remembered and is not `kept`, what had changed before it counts as changed again.
  virtual void EndSnapshot(bool kept) = 0;

  // Gives back the memory that batches were worked on in, which is kept for the next one. REQUIRES: the work
  // of the last batch is done, which is then forgotten.
  virtual void FreeScratch() = 0;

  // Makes room for `rows` rows in all, so that loads do not grow the table. RESOURCE_EXHAUSTED.
  virtual Status Reserve(std::uint64_t rows) = 0;

  // REQUIRES: `keys` are distinct and this rank's; no snapshot is open. Gives each key the record of its
  // place in `host_records`, float[keys][dim + state], whether it had a row or not. Both arrays lie in host
  // memory. Forgets the prepared batch. Waits. RESOURCE_EXHAUSTED, with no row changed: no memory, or more
  // rows than this rank may hold.
  virtual Status Load(std::span<const Key> keys, const float* host_records) = 0;

 protected:
  Shard() = default;
};

// Host memory of a device's choice. It may outlive the device, and be freed by any thread.
struct FreeHost {
  void (*free)(void* memory, int ordinal) noexcept = nullptr;
  int ordinal = -1;  // the device's
  void operator()(void* memory) const noexcept { free(memory, ordinal); }
};
using HostMemory = std::unique_ptr<void, FreeHost>;

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Returns "cpu", or "cuda" and the device's name.
  virtual std::string Name() const = 0;

  // Makes an empty shard. INVALID_ARGUMENT for bad options, RESOURCE_EXHAUSTED if its memory cannot be had.
  virtual Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) = 0;

  // Returns device memory for `bytes` bytes, aligned to 64. Throws std::bad_alloc.
  virtual void* Allocate(std::size_t bytes) = 0;
  // Waits for all that was asked of the device and its streams, because that may be about the memory.
  virtual void Free(void* memory) noexcept = 0;

  // Returns host memory for `bytes` bytes, aligned to 64, that this device reads and writes fastest: with
  // large pages on the CPU, for CUDA pinned and on the device's NUMA node. Making such memory takes long:
  // keep it. Any thread may ask for it, at any time.
  // Throws std::bad_alloc.
  virtual HostMemory AllocateHost(std::size_t bytes) = 0;

  // Makes what brings arrays here that others may write. Any thread may ask for it, at any time. Throws
  // std::bad_alloc.
  virtual std::unique_ptr<Arrivals> MakeArrivals() = 0;
  // Returns device memory of zeros, rounded up to what the device makes, that other processes of the host can
  // map. Null: the device has none to spare, leaves a sixteenth of its memory to batches, or cannot share
  // it. Any thread may ask for it, at any time.
  virtual std::unique_ptr<DeviceArena> MakeArena(std::size_t bytes) = 0;
  // Returns what names the device among all there are: a GPU's UUID, as 32 hexadecimal digits; "host": the
  // device's memory is the host's.
  virtual std::string Uuid() const = 0;

  // Whether device memory is the host's own, so that what a copy would bring is there already.
  virtual bool SharesHostMemory() const = 0;
  // Returns how much memory the device has in all, in bytes; other processes may have some of it.
  virtual std::uint64_t MemoryBytes() const = 0;
  // Returns how much of it can still be taken, in bytes. Any thread may ask, at any time.
  virtual std::uint64_t FreeMemoryBytes() const = 0;

  // Returns how much of it tables can still take, in bytes: the rest is for batches and all else. Any thread
  // may ask, at any time.
  virtual std::uint64_t MemoryForTables() const {
    const std::uint64_t free = FreeMemoryBytes();
    return free - std::min(free, MemoryBytes() / sizing::kKeptFromTables);
  }

  // Returns the stream that the device's shards work in.
  virtual Stream& WorkStream() = 0;
  // Makes an empty plan, for the traffic of any table's batches. Throws std::bad_alloc.
  virtual std::unique_ptr<TrafficPlan> MakeTrafficPlan() = 0;
  // Makes a stream beside the work stream; the new stream's work goes first where both want the same
  // processors.
  virtual std::unique_ptr<Stream> MakeStream() = 0;
  // Returns when all that was asked of the device, in any stream, is done.
  virtual void Wait() = 0;

  // Copies between device memory and any host memory; both return when the bytes have arrived.
  void Upload(void* device, const void* host, std::size_t bytes) { CopyNow(device, host, bytes); }
  void Download(void* host, const void* device, std::size_t bytes) { CopyNow(host, device, bytes); }

  // A thread other than the one that made the device calls this before it uses it.
  virtual void UseOnThisThread() = 0;
  // Returns the device's CUDA ordinal, for libraries that work on the device too; -1 on the CPU.
  virtual int Ordinal() const = 0;

 protected:
  Device() = default;

 private:
  void CopyNow(void* to, const void* from, std::size_t bytes) {
    WorkStream().Copy(to, from, bytes);
    WorkStream().Wait();
  }
};

// Makes a device of the host's processors. `threads` = 0: as many as this process may run on. `processes`: so
// many of this host make one for the same server; the tables of each get an even share of the memory that is
// there now.
std::unique_ptr<Device> MakeCpuDevice(int threads, int processes = 1);

// Makes CUDA device `ordinal`. FAILED_PRECONDITION if this build has no CUDA, or there is no such device.
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal);

// Returns how many CUDA devices this process can see; 0 in a build without CUDA.
int CudaDeviceCount();

// Returns how much memory the host has in all, in bytes, within the limits of this process's control groups
// (a container's, a service's); other processes may have some of it.
std::uint64_t HostMemoryBytesInAll();

// Keeps so much of this process's share of the host's memory from the tables of its CPU devices, for all else
// that the process takes and has taken, and `bytes_a_row` beside each row for lists of a table's keys and
// rows. A sixteenth is kept until then. REQUIRES: the devices that MakeCpuDevice makes are made, and have no
// tables.
void KeepHostMemoryFromTables(std::uint64_t bytes, std::uint64_t bytes_a_row);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SHARD_H_
