// A Shard is one table's slice on one device. A Device has the memory, the threads and the streams that its
// shards use.
//
// The rest of Slotwise knows the kernels by this header alone. Virtual calls happen once a batch and never
// once a key. The same algorithms (kernels/body) run on every backend, and give the same bytes.
//
// A Shard prepares batches, whose handles are in shard_batch.h, and begins snapshots (snapshot.h). Keys, Read
// and Load need neither.
//
// Several shards of one device may each be in the middle of a batch.
// Pointers into "device memory" come from Device::Allocate of the same device (on the CPU, any host memory
// will do). Arrays of floats, and Numbers, begin at a multiple of 16 bytes where dim is a multiple of 4.
// Thread-safety: a Device, its streams and its shards belong to one thread at a time, except for calls whose
// comment says that any thread may make them.
// Device outlives its streams and shards.
// Errors: a Status for errors that a healthy program can meet (no room for rows); std::runtime_error for a
// broken device; std::bad_alloc where a call below says so. A rank cannot go on after either exception.
#ifndef SLOTWISE_KERNELS_SHARD_H_
#define SLOTWISE_KERNELS_SHARD_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/all_to_all_plan.h"
#include "kernels/eviction_place.h"
#include "kernels/hash_secret.h"
#include "kernels/ingest_copy.h"
#include "kernels/shard_batch.h"
#include "kernels/snapshot.h"
#include "kernels/step_scalars.h"
#include "kernels/stream.h"
#include "slotwise/batch.h"
#include "slotwise/power_histogram.h"
#include "slotwise/probe_lengths.h"
#include "slotwise/sizing.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// While an ExactGrowth exists, tables take memory for the rows that they get, and for none ahead. A server
// that starts again has to fit the same rows into the same memory, and memory that one table took ahead could
// be missing for another table's rows.
// Thread-safety: safe from any thread. The scope covers all devices of the process.
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

// Returns the map in which bucket b belongs to rank b · ranks / kBuckets. REQUIRES: 1 <= ranks <= kBuckets.
BucketMap EvenBucketMap(int ranks);

// Says which rank a slice belongs to, how many ranks there are, and which keys each of them owns.
struct ShardPlace {
  Rank rank{0};
  int ranks = 1;
  BucketMap bucket_map = EvenBucketMap(1);
  HashSecret secret;                          // of this rank's hash tables; never shows in an answer
  std::uint64_t max_rows = kMaxRowsPerShard;  // the rank's own limit, in addition to the table's max_rows
};

// Sums (modulo 2^64) over rows of two independent hashes of (key, row, optimizer state).
struct DigestSums {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const DigestSums&, const DigestSums&) = default;
};

struct ShardUsage {
  std::uint64_t rows = 0;
  std::uint64_t cells = 0;  // places of the hash table, taken or free
  std::uint64_t bytes = 0;  // device memory in use for hash table and rows
  // Cells of the last hash table, which is full, whose keys are still to move to the present one.
  std::uint64_t cells_to_move = 0;
  // These count, over all optimizer steps since the shard was made, this rank's keys, each as often as it
  // occurred, and the rows that a step updated.
  std::uint64_t step_keys = 0;
  std::uint64_t step_rows = 0;
  // Keys of pushes that got no row because of the table's admission, each as often as it occurred.
  std::uint64_t refused_keys = 0;
};

// Rows as they are stored, in host memory: RecordFloats(options) floats each.
struct RowRecords {
  std::vector<Key> keys;
  std::vector<float> records;  // [keys][floats]
};

class Shard {
 public:
  // Update keeps at most one partial sum (a row of floats) for this many keys of the batch: a row of n > 32
  // occurrences has one for each block of its tree (docs/semantics.md), and 33 occurrences make 3 blocks.
  static constexpr std::uint64_t kKeysAPartialSum = sizing::kKeysAPartialSum;

  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Takes the keys of `batch` that this rank owns and finds their rows; keys without a row get none, and
  // count as zeros, or as the initial values of their rows. The batch's arrays lie in device memory and
  // must stay there as long as the prepared batch is used. Does not wait. RESOURCE_EXHAUSTED: no memory
  // for the batch.
  Result<FoundBatch> PrepareFind(const BatchView& batch, bool or_initial = false) {
    return Prepare<FoundBatch>(batch, or_initial ? PrepareFor::kFindOrInitial : PrepareFor::kFind);
  }

  // Works as PrepareFind, and also makes room for rows of the keys that have none. Waits only for the weights
  // of a push to a table that divides by them; Preparing::Finish waits for the device.
  Preparing PrepareInsert(const BatchView& batch) { return Begin(batch, PrepareFor::kInsert); }

  // Works as PrepareInsert, but leaves out the keys of zero-divisor bags (docs/semantics.md). Such a bag
  // counts as empty in all calls that follow, pooling included. In a table with an admission, only admitted
  // keys get rows, and the step leaves out the others; Finish waits. `admitting` is for such a table, and its
  // candidates stay as they are until Finish.
  Preparing PreparePush(const BatchView& batch, const Admitting& admitting = {}) {
    return Begin(batch, PrepareFor::kPush, admitting);
  }

  // Works as PrepareFind, and also makes room to remember the rows that ErasableBatch::Erase frees. Waits.
  // RESOURCE_EXHAUSTED: no memory for the batch, or for the rows to remember.
  Result<ErasableBatch> PrepareErase(const BatchView& batch) {
    return Prepare<ErasableBatch>(batch, PrepareFor::kErase);
  }

  // Does the combiner's last step on bags whose partial sums of all ranks are added up: divides values[b][j]
  // by the divisor of mean or sqrtn of bag b (docs/semantics.md), and does nothing for the other combiners.
  // `offsets` are those bags' offsets into the keys that `weights` belong to (null: all 1); all arrays lie in
  // device memory. Enqueues the work on `stream`, whatever batch is prepared.
  virtual void DivideBags(Stream& stream, std::span<const std::uint32_t> offsets, const float* weights,
                          float* values) = 0;

  // An eviction, in a table that keeps scores: the rows that have the first places in the order of eviction
  // are removed, but for the rows of a batch, which are protected. The calls come in this order: Protect
  // of the prepared batch, CountPlaces from the empty prefix on, PrepareEvict, EndProtection, ReserveBehind,
  // ErasableBatch::Erase.
  //
  // Counts the unprotected rows whose places in `order`, the same in all these calls, begin with `prefix`, by
  // the digit of the place that comes next: counts[PlacePrefix::kDigits]. Waits. Throws std::bad_alloc.
  virtual void CountPlaces(const EvictionOrder& order, const PlacePrefix& prefix,
                           std::span<std::uint64_t> counts) = 0;
  // Prepares the unprotected rows whose places are not behind `last`, as PrepareErase prepares keys. Sets
  // `sums` to those of the rows, and `ages`, if it is not null, to the rows' ages at order.now. Waits.
  // RESOURCE_EXHAUSTED: no memory.
  Result<ErasableBatch> PrepareEvict(const EvictionOrder& order, const EvictionPlace& last, EvictedSums& sums,
                                     EvictedAges* ages = nullptr) {
    ++newest_;
    const Result<PreparedRows> prepared = ListUpTo(order, last, sums, ages);
    if (!prepared.ok()) return prepared.status();
    return ErasableBatch(BatchHandle(*prepared->batch, newest_));
  }
  // Makes sure that there will be memory for rows of `more` new keys once `evicted` rows are erased.
  // RESOURCE_EXHAUSTED: there is none.
  virtual Status ReserveBehind(std::uint64_t evicted, std::uint64_t more) = 0;
  // Ends the protection of all rows. Returns the keys of those whose places are not behind `last`, in no
  // order; without `last`, none. Waits. With `last`, throws std::bad_alloc after the protection has ended.
  virtual std::vector<Key> EndProtection(const EvictionOrder& order,
                                         const std::optional<EvictionPlace>& last) = 0;

  // Counts all rows by their ages at order.now, and, if the scores count occurrences, by these counts. Reads
  // each score once for each of the two. Waits. Throws std::bad_alloc. REQUIRES: the table keeps scores;
  // `order` is the table's.
  virtual RowAges CountAges(const EvictionOrder& order) = 0;

  // Returns the sums over this shard's rows. Throws std::bad_alloc.
  virtual DigestSums Digest() = 0;
  virtual ShardUsage Usage() const = 0;

  // Returns the lengths of searches for keys of this rank, as a histogram that only grows. A sample is at
  // most 256 keys of a batch, at even distances. The first batch with keys is sampled, the first after each
  // rehash, and every 1024th after a sample. Searches see the table as Prepare finds it: new keys are absent,
  // and the search for an erased key ends at its dead cell. Does not wait: lengths that have not come to the
  // host yet are counted in a later call. After Device::Wait all have come.
  virtual const ProbeLengths& SampledProbes() = 0;

  // Returns every key, in no order. Throws std::bad_alloc.
  virtual std::vector<Key> Keys() = 0;

  // Returns the records of those of `keys` (in host memory) that have a row here, in their order. Throws
  // std::bad_alloc.
  virtual RowRecords Read(std::span<const Key> keys) = 0;

  // From now on remembers which rows change and which keys are erased, for snapshots of changes; begins with
  // none. Takes a byte of device memory a row, and 8 bytes of host memory an erased key; after more than
  // `max_erased` of those, snapshots of changes are refused until one of all rows is kept. REQUIRES: no
  // snapshot is open. RESOURCE_EXHAUSTED: no memory; changes that were remembered before still are.
  virtual Status TrackChanges(std::uint64_t max_erased) = 0;

  // Begins a snapshot of the rows as they are now, between two batches. The snapshot is read piece by piece
  // while later batches change the rows. Takes four bytes of device memory a row, and
  // options.max_copy_on_write_bytes or less, which the shard keeps for the next snapshot. Waits. REQUIRES: no
  // snapshot is open. FAILED_PRECONDITION: options.changed_only is set, and the changes are not known.
  // RESOURCE_EXHAUSTED: no memory. In both cases nothing has changed.
  virtual Result<BegunSnapshot> BeginSnapshot(const SnapshotOptions& options) = 0;

  // Prepares to alter the table's max_rows, eviction, time to live and admission to those of `options`, and
  // this rank's own limit to `max_rows`. Nothing changes before EndAlter, which has to come next. Forgets the
  // prepared batch. REQUIRES: Validate(options) is OK, all other options are the table's, all work of the
  // device and its streams is done, and, unless KeepsRows(the table's options, `options`), no snapshot is
  // open. RESOURCE_EXHAUSTED: there is no memory; there is nothing to end then.
  Status BeginAlter(const TableOptions& options, std::uint64_t max_rows) {
    ++newest_;
    return PrepareAlter(options, max_rows);
  }
  // Ends what BeginAlter began. If it is `kept`, the table has the other options. Rows that had no score and
  // have one now get `score`; if scores count occurrences now and did not before, or the reverse, they keep
  // their steps, and counts begin at 0, or go (docs/semantics.md). Rows stay, also beyond `max_rows`. Cannot
  // fail, and does not wait.
  virtual void EndAlter(bool kept, std::uint64_t score) = 0;

  // Makes room for `rows` rows in all, so that loads do not grow the table. RESOURCE_EXHAUSTED.
  virtual Status Reserve(std::uint64_t rows) = 0;

  // REQUIRES: `keys` are distinct and this rank's; no snapshot is open. Gives each key the record at its
  // index in `host_records`, float[keys][dim + state], whether the key had a row or not. Both arrays lie in
  // host memory. Forgets the prepared batch. Waits. RESOURCE_EXHAUSTED, with no row changed: no memory, or
  // more rows than this rank may hold.
  Status Load(std::span<const Key> keys, const float* host_records) {
    ++newest_;
    return LoadRecords(keys, host_records);
  }

  // Frees the scratch memory of batches, which is otherwise kept for the next batch. Forgets the prepared
  // batch. REQUIRES: the work of the last batch is done.
  void FreeScratch() {
    ++newest_;
    FreeMemoryOfBatches();
  }

  // These are the two halves of the calls above that prepare a batch, for a Shard that wraps another one.
  // BeginPrepare waits only for what PrepareInsert waits for. FinishPrepare comes next, and waits unless the
  // purpose is kFind.
  virtual void BeginPrepare(const BatchView& batch, PrepareFor purpose, const Admitting& admitting) = 0;
  virtual Result<PreparedRows> FinishPrepare() = 0;
  // Does the work of PrepareEvict, for such a Shard.
  virtual Result<PreparedRows> ListUpTo(const EvictionOrder& order, const EvictionPlace& last,
                                        EvictedSums& sums, EvictedAges* ages) = 0;
  // Returns the shard that such a Shard wraps; else this one.
  virtual Shard& Wrapped() { return *this; }

 protected:
  Shard() = default;

  // Do the work of Load and FreeScratch, except that they do not forget the prepared batch.
  virtual Status LoadRecords(std::span<const Key> keys, const float* host_records) = 0;
  virtual void FreeMemoryOfBatches() = 0;
  // Does the work of BeginAlter, for such a Shard.
  virtual Status PrepareAlter(const TableOptions& options, std::uint64_t max_rows) = 0;

 private:
  friend class Preparing;

  Preparing Begin(const BatchView& batch, PrepareFor purpose, const Admitting& admitting = {}) {
    ++newest_;
    BeginPrepare(batch, purpose, admitting);
    return {*this, newest_};
  }
  template <class Batch>
  Result<Batch> Prepare(const BatchView& batch, PrepareFor purpose) {
    Begin(batch, purpose);
    const Result<PreparedRows> prepared = FinishPrepare();
    if (!prepared.ok()) return prepared.status();
    return Batch(BatchHandle(*prepared->batch, newest_));
  }

  std::uint64_t newest_ = 0;  // the number of the prepared batch
};

inline Result<NewBatch> Preparing::Finish() && {
  const Lent<Shard> shard = std::move(shard_);
  if (shard == nullptr || number_ != shard->newest_) ThrowOldBatch();
  const Result<PreparedRows> prepared = shard->FinishPrepare();
  if (!prepared.ok()) return prepared.status();
  return NewBatch(BatchHandle(*prepared->batch, shard->newest_), prepared->new_rows);
}

inline Result<InsertedBatch> Preparing::Insert(std::uint64_t score) && {
  Result<NewBatch> batch = std::move(*this).Finish();
  if (!batch.ok()) return batch.status();
  return std::move(*batch).Insert(score);
}

// Frees host memory of Device::AllocateHost. The memory may outlive the device, and any thread may free it.
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
  // Frees memory of Allocate. Waits for all work of the device and its streams, which may use the memory.
  virtual void Free(void* memory) noexcept = 0;

  // Returns host memory for `bytes` bytes, aligned to 64, that this device reads and writes fastest: with
  // large pages on the CPU, for CUDA pinned and on the device's NUMA node. Such memory takes long to make, so
  // callers keep it. Any thread may call this, at any time. Throws std::bad_alloc.
  virtual HostMemory AllocateHost(std::size_t bytes) = 0;

  // Makes an IngestCopy to this device. Any thread may call this, at any time. Throws std::bad_alloc.
  virtual std::unique_ptr<IngestCopy> MakeIngestCopy() = 0;
  // Returns zeroed device memory, rounded up to the device's granularity, that other processes of the host
  // can map. Returns null if the device cannot share memory, or if less than a sixteenth of its memory, which
  // is for batches, would be left. Any thread may call this, at any time.
  virtual std::unique_ptr<DeviceSharedBuffer> MakeSharedBuffer(std::size_t bytes) = 0;
  // Returns a name that no other device has: a GPU's UUID, as 32 hexadecimal digits; or "host" if the
  // device's memory is the host's.
  virtual std::string Uuid() const = 0;

  // Returns whether device memory is the host's own, so that no copies between the two are needed.
  virtual bool SharesHostMemory() const = 0;
  // Returns how much memory the device has in all, in bytes; other processes may have some of it.
  virtual std::uint64_t MemoryBytes() const = 0;
  // Returns how much of that memory can still be taken, in bytes. Any thread may call this, at any time.
  virtual std::uint64_t FreeMemoryBytes() const = 0;

  // Returns how much of that memory tables can still take, in bytes: the rest is for batches and everything
  // else. Any thread may call this, at any time.
  virtual std::uint64_t MemoryForTables() const {
    const std::uint64_t free = FreeMemoryBytes();
    return free - std::min(free, MemoryBytes() / sizing::kKeptFromTables);
  }

  // Returns the stream that the device's shards work in.
  virtual Stream& WorkStream() = 0;
  // Makes an empty plan, for the traffic of any table's batches. Throws std::bad_alloc.
  virtual std::unique_ptr<AllToAllPlan> MakeAllToAllPlan() = 0;
  // Makes a stream beside the work stream; the new stream's work goes first where both want the same
  // processors.
  virtual std::unique_ptr<Stream> MakeStream() = 0;
  // Returns when all that was asked of the device, in any stream, is done.
  virtual void Wait() = 0;

  // Copies between device memory and any host memory; both return when the bytes have arrived.
  void Upload(void* device, const void* host, std::size_t bytes) { CopyNow(device, host, bytes); }
  void Download(void* host, const void* device, std::size_t bytes) { CopyNow(host, device, bytes); }

  // Every thread but the one that made the device calls this before it uses the device.
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

// Makes a device of the host's processors. `threads` = 0 means as many as this process may run on.
// `processes` counts the processes of this host that make one for the same server: the tables of each get an
// even share of the memory that is available now.
std::unique_ptr<Device> MakeCpuDevice(int threads, int processes = 1);

// Makes CUDA device `ordinal`. FAILED_PRECONDITION if this build has no CUDA, or there is no such device.
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal);

// Returns how many CUDA devices this process can see; 0 in a build without CUDA.
int CudaDeviceCount();

// Returns how much memory the host has in all, in bytes, within the limits of this process's control groups
// (a container's, a service's); other processes may have some of it.
std::uint64_t HostMemoryBytesInAll();

// Keeps `bytes` of this process's share of the host's memory from the tables of its CPU devices, for
// everything else that the process takes and has taken, and `bytes_a_row` more for each row, for lists of a
// table's keys and rows. Until this call a sixteenth is kept. REQUIRES: MakeCpuDevice has made the devices,
// and they have no tables.
void KeepHostMemoryFromTables(std::uint64_t bytes, std::uint64_t bytes_a_row);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SHARD_H_
