#include "tests/support/apart_device.h"

#include <cstring>
#include <utility>
#include <vector>

namespace slotwise::test {
namespace {

class LateCopies {
 public:
  void Add(void* to, const void* from, std::size_t bytes) { copies_.push_back({to, from, bytes}); }
  void Do() {
    for (const auto& [to, from, bytes] : std::exchange(copies_, {})) {
      if (bytes > 0) std::memmove(to, from, bytes);
    }
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::vector<Copy> copies_;
};

class ApartShard final : public Shard {
 public:
  ApartShard(std::shared_ptr<LateCopies> copies, std::unique_ptr<Shard> shard)
      : copies_(std::move(copies)), shard_(std::move(shard)) {}

  Result<NewRows> Prepare(const BatchView& batch, bool insert) override {
    return Now().Prepare(batch, insert);
  }
  std::uint64_t ExactNewRows() override { return Now().ExactNewRows(); }
  void Insert() override { Now().Insert(); }
  void Pool(Numbers partial) override { Now().Pool(partial); }
  void DivideBags(std::span<const std::uint32_t> offsets, const float* weights, float* values) override {
    Now().DivideBags(offsets, weights, values);
  }
  void Update(const float* gradients, const StepScalars& scalars) override {
    Now().Update(gradients, scalars);
  }
  void PlanTraffic(std::span<const std::size_t> bags_of) override { Now().PlanTraffic(bags_of); }
  const BagTraffic& Traffic() override { return Now().Traffic(); }
  void PoolToSend(Numbers partial) override { Now().PoolToSend(partial); }
  void AddReceived(ConstNumbers received, float* sums) override { Now().AddReceived(received, sums); }
  void GradientsToSend(const float* gradients, float* sent) override {
    Now().GradientsToSend(gradients, sent);
  }
  void UpdateFromReceived(const float* received, const StepScalars& scalars) override {
    Now().UpdateFromReceived(received, scalars);
  }
  void Assign(const float* values, std::uint32_t columns) override { Now().Assign(values, columns); }
  Status PrepareErase() override { return Now().PrepareErase(); }
  std::uint64_t Erase() override { return Now().Erase(); }
  DigestSums Digest() override { return Now().Digest(); }
  ShardUsage Usage() const override { return shard_->Usage(); }
  std::vector<Key> Keys() override { return Now().Keys(); }
  RowRecords Read(std::span<const Key> keys) override { return Now().Read(keys); }

 private:
  Shard& Now() {
    copies_->Do();
    return *shard_;
  }

  std::shared_ptr<LateCopies> copies_;
  std::unique_ptr<Shard> shard_;
};

class ApartDevice final : public Device {
 public:
  explicit ApartDevice(int ordinal) : ordinal_(ordinal) {}
  ~ApartDevice() override { copies_->Do(); }

  std::string Name() const override { return "apart"; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    auto shard = cpu_->MakeShard(options, place);
    if (!shard.ok()) return shard;
    return std::unique_ptr<Shard>(std::make_unique<ApartShard>(copies_, std::move(*shard)));
  }
  void* Allocate(std::size_t bytes) override { return cpu_->Allocate(bytes); }
  void Free(void* memory) noexcept override { cpu_->Free(memory); }
  HostMemory AllocateHost(std::size_t bytes) override { return cpu_->AllocateHost(bytes); }
  bool SharesHostMemory() const override { return false; }
  void Copy(void* to, const void* from, std::size_t bytes) override { copies_->Add(to, from, bytes); }
  void Wait() override { copies_->Do(); }
  void UseOnThisThread() override {}
  int Ordinal() const override { return ordinal_; }
  void* NativeStream() const override { return nullptr; }

 private:
  const int ordinal_;
  std::unique_ptr<Device> cpu_ = MakeCpuDevice(1);
  std::shared_ptr<LateCopies> copies_ = std::make_shared<LateCopies>();
};

}  // namespace

std::unique_ptr<Device> MakeApartDevice(int ordinal) { return std::make_unique<ApartDevice>(ordinal); }

}  // namespace slotwise::test
