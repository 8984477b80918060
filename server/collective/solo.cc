// The only rank already has everything that other ranks would send.
#include <algorithm>

#include "server/collective/collective.h"
#include "server/collective/exchange.h"

namespace slotwise {
namespace {

class SoloCollective final : public Collective {
 public:
  Rank rank() const override { return Rank{0}; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }

  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::ranges::copy(mine, all.begin());
  }
  void AllReduceSum(std::span<std::uint64_t> /*values*/) override {}
  void Wake(std::uint64_t /*wait*/) override {}
  bool PollWake(std::uint64_t /*wait*/) override { return false; }
};

class SoloExchange final : public Exchange {
 public:
  explicit SoloExchange(Stream& stream) : Exchange(stream) {}

  std::string Name() const override { return "copies"; }
  void AllGatherBlocks(std::span<const std::size_t> /*bytes*/, void* /*blocks*/) override {}
  void ReduceScatter(std::span<const std::size_t> sizes, ConstNumbers partial, float* mine) override {
    if (partial.type == DataType::kFloat32)
      return stream().Copy(mine, partial.data, sizes[0] * sizeof(float));
    stream().SumOverRanks({.blocks = partial, .size = sizes[0]}, mine);
  }
  void AllToAll(std::span<const std::size_t> to_sizes, ConstNumbers send,
                std::span<const std::size_t> /*from_sizes*/, Numbers received) override {
    stream().Copy(received.data, send.data, to_sizes[0] * BytesOf(send.type));
  }
};

}  // namespace

std::unique_ptr<Collective> MakeSoloCollective() { return std::make_unique<SoloCollective>(); }
std::unique_ptr<Exchange> MakeSoloExchange(Stream& stream) { return std::make_unique<SoloExchange>(stream); }

}  // namespace slotwise
