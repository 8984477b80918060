// A process may use the host's memory within the limits of its control groups.
#include "kernels/backend/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend/cpu_memory.h"

namespace slotwise {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A folder with the files of a machine of 1000 MiB, of which 600 are available.
class AHost : public ::testing::Test {
 protected:
  AHost() {
    std::string name = ::testing::TempDir() + "/slotwise-host-XXXXXX";
    root_ = mkdtemp(name.data());
    Write("/proc/meminfo", "MemTotal:        1024000 kB\nMemFree: 1 kB\nMemAvailable:    614400 kB\n");
  }
  ~AHost() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void Group2(const std::string& path, const std::string& limit, std::size_t used_mib,
              std::size_t files_mib) {
    Write("/sys/fs/cgroup" + path + "/memory.max", limit + "\n");
    Write("/sys/fs/cgroup" + path + "/memory.current", std::to_string(used_mib * kMiB) + "\n");
    Write("/sys/fs/cgroup" + path + "/memory.stat",
          "anon 17\nfile 4\ninactive_file " + std::to_string((files_mib - files_mib / 4) * kMiB) +
              "\nactive_file " + std::to_string(files_mib / 4 * kMiB) + "\n");
  }
  void Expect(std::size_t total_mib, std::size_t available_mib) {
    const HostMemoryBytes memory = ReadHostMemory(root_);
    EXPECT_EQ(memory.total / kMiB, total_mib);
    EXPECT_EQ(memory.available / kMiB, available_mib);
  }

  std::string root_;
};

TEST_F(AHost, WithoutControlGroupsHasWhatTheMachineHas) {
  Expect(1000, 600);
  Write("/proc/self/cgroup", "nonsense\n0::\n");
  Expect(1000, 600);
}

TEST_F(AHost, WithVersion2HasWhatEveryGroupAroundTheProcessLeaves) {
  Write("/proc/self/cgroup", "0::/service/rank\n");
  Group2("/service/rank", "max", 300, 0);
  Expect(1000, 600);
  Group2("/service/rank", std::to_string(400 * kMiB), 300, 50);
  Expect(400, 150);
  Group2("/service", std::to_string(350 * kMiB), 340, 0);
  Expect(350, 10);
  Group2("/service", std::to_string(350 * kMiB), 400, 0);  // it was lowered
  Expect(350, 0);
}

TEST_F(AHost, InAContainerHasWhatItsOwnGroupLeaves) {
  Write("/proc/self/cgroup", "0::/docker/1234\n");  // no such folder inside
  Group2("", std::to_string(200 * kMiB), 100, 20);
  Expect(200, 120);
  Write("/proc/self/cgroup", "0::/\n");
  Expect(200, 120);
}

TEST_F(AHost, WithVersion1HasWhatItsGroupLeaves) {
  Write("/proc/self/cgroup", "11:cpu,cpuacct:/elsewhere\n5:hugetlb,memory:/docker/1\n1:name=systemd:/\n");
  const std::string group = "/sys/fs/cgroup/memory/docker/1";
  Write(group + "/memory.limit_in_bytes", std::to_string(500 * kMiB));
  Write(group + "/memory.usage_in_bytes", std::to_string(100 * kMiB));
  Write(group + "/memory.stat", "inactive_file 1\ntotal_inactive_file " + std::to_string(30 * kMiB) +
                                    "\ntotal_active_file " + std::to_string(10 * kMiB) + "\n");
  Expect(500, 440);
  Write(group + "/memory.limit_in_bytes", "9223372036854771712");  // none
  Expect(1000, 600);
}

TEST_F(AHost, IsSharedEvenlyByProcessesThatDoNotKnowWhatOthersHavePromised) {
  const auto left = [&] { return (HostMemoryForTables(root_) + kMiB / 2) / kMiB; };
  constexpr std::size_t kAll = 600 - 1000 / 16;
  EXPECT_NEAR(left(), kAll, 1);
  ShareHostMemory(2, root_);
  const std::size_t share = left();
  EXPECT_NEAR(share, static_cast<double>(kAll) / 2, 2);
  EXPECT_LE(2 * HostMemoryForTables(root_), (kAll + 1) * kMiB);
  {
    AddressRange range(400 * kMiB);
    range.Commit(100 * kMiB);  // promised, and not touched
    const std::size_t before = left();
    EXPECT_NEAR(before + 100, share, 2);
    range.Commit(200 * kMiB);
    EXPECT_NEAR(left() + 100, before, 2);
    range.Commit(400 * kMiB);
    EXPECT_EQ(left(), 0U) << "what is there is for the others";
  }
  EXPECT_NEAR(left(), share, 2);
  Write("/proc/meminfo", "MemTotal:        1024000 kB\nMemAvailable:    102400 kB\n");
  EXPECT_NEAR(left(), 100 - 1000.0 / 32, 1) << "somebody else has taken the rest";
  ShareHostMemory(1, root_);
  Write("/proc/meminfo", "MemTotal:        1024000 kB\nMemAvailable:    614400 kB\n");
  EXPECT_NEAR(left(), kAll, 1);
}

TEST_F(AHost, KeepsFromTablesWhatIsPromisedElsewhere) {
  const auto left = [&] { return (HostMemoryForTables(root_) + kMiB / 2) / kMiB; };
  const std::size_t resident = ResidentBytes() / kMiB;
  ShareHostMemory(1, root_);
  KeepFromTables((resident + 200) * kMiB, 8);
  EXPECT_EQ(KeptBesideARow(), 8U);
  EXPECT_NEAR(left(), 600 - 200, 4) << "less what is resident, which is not available any more";
  {
    TableBytes cells;
    cells.Set(50 * kMiB);
    EXPECT_NEAR(left(), 600 - 250, 4);
    cells.Set(70 * kMiB);
    EXPECT_NEAR(left(), 600 - 270, 4);
    AddressRange range(400 * kMiB);
    range.Commit(100 * kMiB);
    EXPECT_NEAR(left(), 600 - 370, 4);
    // 30 of the 200 are in use: the host has less, and as much is promised.
    Write("/proc/meminfo", "MemTotal:        1024000 kB\nMemAvailable:    583680 kB\n");
    const std::vector<char> request(30 * kMiB, 1);
    EXPECT_NEAR(left(), 600 - 370, 4);
    Write("/proc/meminfo", "MemTotal:        1024000 kB\nMemAvailable:    614400 kB\n");
  }
  EXPECT_NEAR(left(), 600 - 200, 4);
  ShareHostMemory(2, root_);
  KeepFromTables((resident + 200) * kMiB, 8);
  EXPECT_NEAR(left(), 300 - 200, 4) << "each process has as much to keep";
  ShareHostMemory(1, root_);
}

TEST(HostMemory, OfThisMachineIsSomething) {
  const HostMemoryBytes memory = ReadHostMemory();
  EXPECT_GT(memory.total, 64 * kMiB);
  EXPECT_GT(memory.available, 0U);
  EXPECT_LE(memory.available, memory.total);
  EXPECT_LT(memory.total, std::size_t{1} << 50);
}

TEST(HostMemory, ThatATableHasButHasNotTouchedIsNotForOthers) {
  const std::size_t before = HostMemoryForTables();
  ASSERT_GT(before, 512 * kMiB) << "this test wants a machine with more memory";
  {
    AddressRange range(before);
    range.Commit(before / 2);
    EXPECT_LT(HostMemoryForTables(), before / 2 + before / 8);
  }
  EXPECT_GT(HostMemoryForTables(), before / 2 + before / 4);
}

// Returns what the kernel calls the pages of the mapping that `memory` lies in ("hg" for large ones), as of
// /proc/self/smaps.
std::string FlagsOf(const void* memory) {
  std::ifstream smaps("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  bool is_in = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    std::istringstream words(line);
    char dash = 0;
    if (words >> std::hex >> first >> dash >> last && dash == '-') is_in = first <= address && address < last;
    if (is_in && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

// A thousand small tables would take gigabytes otherwise, and the time to zero them.
TEST(AddressRanges, TakeNoLargePageForTheirFirstBytes) {
  AddressRange range(std::size_t{1} << 30);
  range.Commit(8 * kMiB);
  char* const bytes = static_cast<char*>(range.data());
  bytes[0] = bytes[1] = 1;
  std::vector<unsigned char> resident(2 * kMiB / 4096);
  ASSERT_EQ(mincore(bytes, 2 * kMiB, resident.data()), 0);
  EXPECT_EQ(std::ranges::count_if(resident, [](unsigned char page) { return (page & 1) != 0; }), 1);
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) return;
  EXPECT_NE(FlagsOf(bytes).find(" nh "), std::string::npos) << FlagsOf(bytes);
  EXPECT_NE(FlagsOf(bytes + 6 * kMiB).find(" hg "), std::string::npos) << FlagsOf(bytes + 6 * kMiB);
}

// A table of some thousand rows would be read at random through small pages otherwise, which takes longer.
TEST(AddressRanges, TakeALargePageForTheirFirstBytesOnceThoseAreFull) {
  AddressRange range(std::size_t{1} << 30);
  range.Commit(1);
  char* const bytes = static_cast<char*>(range.data());
  bytes[0] = 7;
  range.Commit(2 * kMiB + 1);
  EXPECT_EQ(bytes[0], 7);
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) return;
  EXPECT_EQ(FlagsOf(bytes).find(" nh "), std::string::npos) << FlagsOf(bytes);
  EXPECT_NE(FlagsOf(bytes).find(" hg "), std::string::npos) << FlagsOf(bytes);
}

TEST(AddressRanges, AreAsLargeAsTheHostAndLeaveAddressesForTheRest) {
  const std::size_t total = ReadHostMemory().total;
  const std::size_t each = (total + kLargePage - 1) / kLargePage * kLargePage;
  AddressRange one(std::size_t{1} << 50);
  EXPECT_THROW(one.Commit(2 * total), std::bad_alloc);
  one.Commit(1);
  std::vector<AddressRange> others;
  const auto fill = [&] {
    for (;;) others.emplace_back(AddressRange::kMostAddresses);
  };
  EXPECT_THROW(fill(), std::bad_alloc);
  EXPECT_EQ(1 + others.size(), AddressRange::kMostAddresses / each);
  EXPECT_NO_THROW(std::make_unique<char[]>(64 * kMiB));
  others.clear();
  EXPECT_NO_THROW(others.emplace_back(AddressRange::kMostAddresses));
}

}  // namespace
}  // namespace slotwise
