// The only rank: everything it would hear from others it already has.
#include <algorithm>
#include <cstring>

#include "server/collective/collective.h"

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
  void AllGatherBlocks(std::span<const std::size_t> /*sizes*/, void* /*blocks*/) override {}
  void ReduceScatter(std::span<const std::size_t> sizes, const float* partial, float* mine) override {
    std::copy_n(partial, sizes[0], mine);
  }
  void AllReduceSum(std::span<std::uint64_t> /*values*/) override {}
  void Wake(std::uint64_t /*wait*/) override {}
  bool PollWake(std::uint64_t /*wait*/) override { return false; }
};

}  // namespace

std::unique_ptr<Collective> MakeSoloCollective() { return std::make_unique<SoloCollective>(); }

}  // namespace slotwise
