#include "tests/contract/over_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tests/support/device_kinds.h"
#include "tests/support/mpi_cluster.h"

namespace slotwise::test {
namespace {

constexpr std::chrono::seconds kLimit{120};  // for a call that others join after a computation of theirs

struct KindOfRanks {
  const char* name;
  DeviceKind device;
  ExchangeOptions exchange;
  int most_ranks;
  int least_ranks = 2;
};
constexpr int kAny = 1 << 16;

// Whether `./dev test all` runs.
bool LongForms() {
  const char* const asked = std::getenv("SLOTWISE_TESTS");
  return asked != nullptr && std::string_view(asked) == "all";
}

const KindOfRanks kKinds[] = {
    // Two ranks are those of the device whose memory is apart; only the long form has these too.
    {"CpuOverRanks", kCpu, {.deterministic = true}, kAny, LongForms() ? 2 : 3},
    {"ApartOverRanks", kApart, {.deterministic = true}, 2},  // more would stage bytes in no other way
    {"CudaOverRanks", kCuda, {.deterministic = true}, kAny},
    {"CudaOverRanksInAnyOrder",
     kCuda,
     {.deterministic = false},
     2},  // two floats have one sum, three have three
};

std::string CurrentTest() {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  return test == nullptr ? "" : std::string(test->test_suite_name()) + "." + test->name();
}

// What lasts as long as MPI does: connecting GPUs anew for every test would take longer than the tests.
class Connections : public testing::Environment {
 public:
  void SetUp() override {
    collective_ = MakeMpiCollective();
    collective_->watchdog().Start(kLimit, [](const std::string& why) {
      std::fprintf(stderr, "%s, in %s: this rank ends\n", why.c_str(), CurrentTest().c_str());
      std::_Exit(1);
    });
  }
  void TearDown() override {
    clusters_.clear();
    collective_.reset();
  }

  int local_rank() const { return collective_->local_rank(); }

  std::shared_ptr<Cluster> ClusterOf(const Backend& backend) {
    ExpectAllInTheSameTest();
    const auto found = clusters_.find(backend.name);
    return found != clusters_.end() ? found->second : clusters_[backend.name] = Connect(backend);
  }

 private:
  std::shared_ptr<Cluster> Connect(const Backend& backend) {
    const KindOfRanks& kind = *std::ranges::find(kKinds, backend.name, &KindOfRanks::name);
    const int ranks = collective_->size();
    if (ranks < kind.least_ranks || ranks > kind.most_ranks) return nullptr;
    return std::make_shared<MpiCluster>(*collective_, backend.make_device(), kind.exchange);
  }

  void ExpectAllInTheSameTest() {
    const std::uint64_t mine = std::hash<std::string>{}(CurrentTest());
    std::vector<std::uint64_t> all(static_cast<std::size_t>(collective_->size()));
    collective_->AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    if (std::ranges::count(all, mine) == collective_->size()) return;
    std::fprintf(stderr, "rank %d is at %s, and others are elsewhere: all end\n", Value(collective_->rank()),
                 CurrentTest().c_str());
    MpiSession::AbortAllRanks(1);
  }

  std::unique_ptr<Collective> collective_;
  std::map<std::string, std::shared_ptr<Cluster>> clusters_;
};

Connections& TheConnections() {
  static auto* const kConnections =
      static_cast<Connections*>(testing::AddGlobalTestEnvironment(new Connections));  // GoogleTest owns it
  return *kConnections;
}

}  // namespace

void LeaveOutWhatMoreRanksDoNotChange() {
  const bool more = MakeMpiCollective()->size() > 2;
  if (!more || LongForms() || GTEST_FLAG_GET(filter) != "*") return;
  GTEST_FLAG_SET(filter,
                 "-*Growth.*:*Optimizer.*:*RowWiseAdaGrad.*:*Trap.*:*CollidingKeys.*:*Overflow.*:"
                 "*LargeBatches.*:*NormalValues.*:*GradientSum.*:*InitialValues.*");
}

std::vector<Backend> BackendsOverRanks() {
  std::vector<Backend> backends;
  Connections& connections = TheConnections();  // made before the tests begin
  for (const KindOfRanks& kind : kKinds) {
    const bool is_here = std::string_view(kind.device.name) != kCuda.name || CudaDeviceCount() > 0;
    if (!is_here) continue;
    backends.push_back(
        {kind.name, [kind, &connections] { return kind.device.make(connections.local_rank()); }});
  }
  return backends;
}

std::shared_ptr<Cluster> ClusterOverRanks(const Backend& backend) {
  return TheConnections().ClusterOf(backend);
}

}  // namespace slotwise::test
