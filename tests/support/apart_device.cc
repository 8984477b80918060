#include "tests/support/apart_device.h"

#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace slotwise::test {
namespace {

// What was asked of a stream and is not done yet.
class Late {
 public:
  void Add(std::function<void()> work) { asked_.push_back(std::move(work)); }
  std::size_t asked() const { return done_ + asked_.size(); }
  // Does the first `count` things that were ever asked of it, as far as they are not done.
  void Do(std::size_t count) {
    while (done_ < count) {
      const std::function<void()> work = std::move(asked_.front());
      asked_.pop_front();
      ++done_;
      work();
    }
  }
  void DoAll() { Do(asked()); }
  bool IsDone() const { return asked_.empty(); }

 private:
  std::deque<std::function<void()>> asked_;
  std::size_t done_ = 0;
};

class ApartStream final : public Stream {
 public:
  ~ApartStream() override { late_->DoAll(); }

  Late& late() { return *late_; }
  std::shared_ptr<Late> shared_late() const { return late_; }
  void OrderAfter(Stream& other) override {
    auto before = static_cast<ApartStream&>(other).late_;
    if (before == late_) return;
    late_->Add([before, count = before->asked()] { before->Do(count); });
  }
  void Copy(void* to, const void* from, std::size_t bytes) override {
    late_->Add([to, from, bytes] {
      if (bytes > 0) std::memmove(to, from, bytes);
    });
  }
  void SumBlocks(const RankBlocks& blocks, float* sum) override {
    late_->Add([blocks, sum] { SumBlocksOnHost(blocks, sum); });
  }
  void Wait() override { late_->DoAll(); }
  bool IsDone() override { return late_->IsDone(); }
  void* NativeHandle() const override { return nullptr; }

 private:
  std::shared_ptr<Late> late_ = std::make_shared<Late>();
};

class ApartPlan final : public TrafficPlan {
 public:
  explicit ApartPlan(std::unique_ptr<TrafficPlan> cpu) : cpu_(std::move(cpu)) {}

  TrafficPlan& cpu() const { return *cpu_; }
  const BagTraffic& Traffic() override { return cpu_->Traffic(); }

 private:
  std::unique_ptr<TrafficPlan> cpu_;
};

TrafficPlan& CpuPlanOf(TrafficPlan& plan) { return static_cast<ApartPlan&>(plan).cpu(); }

class ApartShard final : public Shard {
 public:
  ~ApartShard() override { work_.Wait(); }

  ApartShard(ApartStream& work, Stream& cpu_work, std::unique_ptr<Shard> shard)
      : work_(work), cpu_work_(cpu_work), shard_(std::move(shard)) {}

  Result<NewRows> Prepare(const BatchView& batch, bool insert) override {
    return Now().Prepare(batch, insert);
  }
  std::uint64_t ExactNewRows() override { return Now().ExactNewRows(); }
  void Insert() override { Now().Insert(); }
  void Pool(Numbers partial) override {
    Later([=, this] { shard_->Pool(partial); });
  }
  void DivideBags(Stream& stream, std::span<const std::uint32_t> offsets, const float* weights,
                  float* values) override {
    static_cast<ApartStream&>(stream).late().Add(
        [this, offsets, weights, values] { shard_->DivideBags(cpu_work_, offsets, weights, values); });
  }
  void Update(const float* gradients, const StepScalars& scalars) override {
    Later([=, this] { shard_->Update(gradients, scalars); });
  }
  // At once, so that whoever fills a plan that is still in use sees it overwritten as early as a GPU might.
  void PlanTraffic(std::span<const std::size_t> bags_of, TrafficPlan& plan) override {
    Now().PlanTraffic(bags_of, CpuPlanOf(plan));
  }
  void PoolToSend(TrafficPlan& plan, Numbers partial) override {
    Later([=, this, &plan] { shard_->PoolToSend(CpuPlanOf(plan), partial); });
  }
  void AddReceived(Stream& stream, const TrafficPlan& plan, ConstNumbers received, float* sums) override {
    const TrafficPlan& cpu_plan = static_cast<const ApartPlan&>(plan).cpu();
    static_cast<ApartStream&>(stream).late().Add(
        [this, &cpu_plan, received, sums] { shard_->AddReceived(cpu_work_, cpu_plan, received, sums); });
  }
  void GradientsToSend(TrafficPlan& plan, const float* gradients, float* sent) override {
    Later([=, this, &plan] { shard_->GradientsToSend(CpuPlanOf(plan), gradients, sent); });
  }
  void UpdateFromReceived(TrafficPlan& plan, const float* received, const StepScalars& scalars) override {
    Later([=, this, &plan] { shard_->UpdateFromReceived(CpuPlanOf(plan), received, scalars); });
  }
  void Assign(const float* values, std::uint32_t columns) override { Now().Assign(values, columns); }
  Status PrepareErase() override { return Now().PrepareErase(); }
  std::uint64_t Erase() override { return Now().Erase(); }
  DigestSums Digest() override { return Now().Digest(); }
  ShardUsage Usage() const override { return shard_->Usage(); }
  std::vector<Key> Keys() override { return Now().Keys(); }
  RowRecords Read(std::span<const Key> keys) override { return Now().Read(keys); }

 private:
  void Later(std::function<void()> work) { work_.late().Add(std::move(work)); }
  Shard& Now() {
    work_.Wait();
    return *shard_;
  }

  ApartStream& work_;
  Stream& cpu_work_;
  std::unique_ptr<Shard> shard_;
};

class ApartDevice final : public Device {
 public:
  explicit ApartDevice(int ordinal) : ordinal_(ordinal) {}

  std::string Name() const override { return "apart"; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    auto shard = cpu_->MakeShard(options, place);
    if (!shard.ok()) return shard;
    return std::unique_ptr<Shard>(std::make_unique<ApartShard>(work_, cpu_->WorkStream(), std::move(*shard)));
  }
  std::unique_ptr<TrafficPlan> MakeTrafficPlan() override {
    return std::make_unique<ApartPlan>(cpu_->MakeTrafficPlan());
  }
  void* Allocate(std::size_t bytes) override { return cpu_->Allocate(bytes); }
  void Free(void* memory) noexcept override {
    Wait();
    cpu_->Free(memory);
  }
  HostMemory AllocateHost(std::size_t bytes) override { return cpu_->AllocateHost(bytes); }
  bool SharesHostMemory() const override { return false; }
  Stream& WorkStream() override { return work_; }
  std::unique_ptr<Stream> MakeStream() override {
    auto stream = std::make_unique<ApartStream>();
    streams_.push_back(stream->shared_late());
    return stream;
  }
  void Wait() override {
    work_.Wait();
    for (const auto& stream : streams_) stream->DoAll();
  }
  void UseOnThisThread() override {}
  int Ordinal() const override { return ordinal_; }

 private:
  const int ordinal_;
  std::unique_ptr<Device> cpu_ = MakeCpuDevice(1);
  ApartStream work_;
  std::vector<std::shared_ptr<Late>> streams_;
};

}  // namespace

std::unique_ptr<Device> MakeApartDevice(int ordinal) { return std::make_unique<ApartDevice>(ordinal); }

}  // namespace slotwise::test
