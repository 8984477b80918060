#include "tests/sim/short_memory.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace slotwise::sim {
namespace {

using IsShort = std::function<bool()>;

Status NoMemory() { return ResourceExhausted("simulated: no memory on this rank"); }

class ShortShard final : public Shard {
 public:
  ShortShard(std::unique_ptr<Shard> shard, IsShort is_short)
      : shard_(std::move(shard)), is_short_(std::move(is_short)) {}

  // Batches and snapshots that there is memory for are the shard's own.
  void BeginPrepare(const BatchView& batch, PrepareFor purpose, const Admitting& admitting) override {
    erases_ = purpose == PrepareFor::kErase;
    no_memory_ = !std::exchange(reserved_, false) && is_short_();
    if (!no_memory_) shard_->BeginPrepare(batch, purpose, admitting);
  }
  Result<PreparedRows> FinishPrepare() override {
    if (no_memory_ || (erases_ && is_short_())) return NoMemory();
    return shard_->FinishPrepare();
  }
  void DivideBags(Stream& stream, std::span<const std::uint32_t> offsets, const float* weights,
                  float* values) override {
    shard_->DivideBags(stream, offsets, weights, values);
  }
  void CountPlaces(const EvictionOrder& order, const PlacePrefix& prefix,
                   std::span<std::uint64_t> counts) override {
    shard_->CountPlaces(order, prefix, counts);
  }
  std::vector<Key> EndProtection(const EvictionOrder& order,
                                 const std::optional<EvictionPlace>& last) override {
    return shard_->EndProtection(order, last);
  }
  Result<PreparedRows> ListUpTo(const EvictionOrder& order, const EvictionPlace& last, EvictedSums& sums,
                                EvictedAges* ages) override {
    if (is_short_()) return NoMemory();
    return shard_->ListUpTo(order, last, sums, ages);
  }
  Status ReserveBehind(std::uint64_t evicted, std::uint64_t more) override {
    if (is_short_()) return NoMemory();
    const Status room = shard_->ReserveBehind(evicted, more);
    reserved_ = room.ok();
    return room;
  }
  Shard& Wrapped() override { return shard_->Wrapped(); }
  RowAges CountAges(const EvictionOrder& order) override { return shard_->CountAges(order); }
  DigestSums Digest() override { return shard_->Digest(); }
  ShardUsage Usage() const override { return shard_->Usage(); }
  const ProbeLengths& SampledProbes() override { return shard_->SampledProbes(); }
  std::vector<Key> Keys() override { return shard_->Keys(); }
  RowRecords Read(std::span<const Key> keys) override { return shard_->Read(keys); }
  Status TrackChanges(std::uint64_t max_erased) override {
    return is_short_() ? NoMemory() : shard_->TrackChanges(max_erased);
  }
  Result<BegunSnapshot> BeginSnapshot(const SnapshotOptions& options) override {
    if (is_short_()) return NoMemory();
    return shard_->BeginSnapshot(options);
  }
  void EndAlter(bool kept, std::uint64_t score) override { shard_->EndAlter(kept, score); }
  Status Reserve(std::uint64_t rows) override { return is_short_() ? NoMemory() : shard_->Reserve(rows); }

 protected:
  Status LoadRecords(std::span<const Key> keys, const float* host_records) override {
    return is_short_() ? NoMemory() : shard_->Load(keys, host_records);
  }
  void FreeMemoryOfBatches() override { shard_->FreeScratch(); }
  Status PrepareAlter(const TableOptions& options, std::uint64_t max_rows) override {
    return is_short_() ? NoMemory() : shard_->BeginAlter(options, max_rows);
  }

 private:
  const std::unique_ptr<Shard> shard_;
  const IsShort is_short_;
  bool no_memory_ = false;  // for the batch that was begun
  bool erases_ = false;     // it is to be erased
  bool reserved_ = false;   // there is memory for the next batch, because rows were evicted for it
};

class ShortDevice final : public Device {
 public:
  ShortDevice(Device& device, IsShort is_short, std::function<void(const ShardPlace&)> on_make)
      : device_(device), is_short_(std::move(is_short)), on_make_(std::move(on_make)) {}

  std::string Name() const override { return device_.Name(); }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    on_make_(place);
    if (is_short_()) return NoMemory();
    auto shard = device_.MakeShard(options, place);
    if (!shard.ok()) return shard;
    return std::unique_ptr<Shard>(std::make_unique<ShortShard>(std::move(*shard), is_short_));
  }
  void* Allocate(std::size_t bytes) override { return device_.Allocate(bytes); }
  void Free(void* memory) noexcept override { device_.Free(memory); }
  HostMemory AllocateHost(std::size_t bytes) override { return device_.AllocateHost(bytes); }
  std::unique_ptr<IngestCopy> MakeIngestCopy() override { return device_.MakeIngestCopy(); }
  std::unique_ptr<DeviceSharedBuffer> MakeSharedBuffer(std::size_t bytes) override {
    return device_.MakeSharedBuffer(bytes);
  }
  std::string Uuid() const override { return device_.Uuid(); }
  bool SharesHostMemory() const override { return device_.SharesHostMemory(); }
  std::uint64_t MemoryBytes() const override { return device_.MemoryBytes(); }
  std::uint64_t FreeMemoryBytes() const override { return device_.FreeMemoryBytes(); }
  Stream& WorkStream() override { return device_.WorkStream(); }
  std::unique_ptr<Stream> MakeStream() override { return device_.MakeStream(); }
  std::unique_ptr<AllToAllPlan> MakeAllToAllPlan() override { return device_.MakeAllToAllPlan(); }
  void Wait() override { device_.Wait(); }
  void UseOnThisThread() override { device_.UseOnThisThread(); }
  int Ordinal() const override { return device_.Ordinal(); }

 private:
  Device& device_;
  const IsShort is_short_;
  const std::function<void(const ShardPlace&)> on_make_;
};

}  // namespace

std::unique_ptr<Device> MakeShortDevice(Device& device, std::function<bool()> is_short,
                                        std::function<void(const ShardPlace&)> on_make) {
  return std::make_unique<ShortDevice>(device, std::move(is_short), std::move(on_make));
}

}  // namespace slotwise::sim
