// Tests the reported resource usage of a process.
#include "server/ops/process_usage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

namespace slotwise {
namespace {

TEST(ProcessUsageTest, CountsOpenFiles) {
  const ProcessUsage before = ReadProcessUsage();
  const int file = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(file, 0);
  const ProcessUsage after = ReadProcessUsage();
  ::close(file);
  EXPECT_EQ(after.open_files, before.open_files + 1);
  EXPECT_EQ(ReadProcessUsage().open_files, before.open_files);
  EXPECT_GE(before.open_files, 3U);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(before.max_files, limit.rlim_cur);
}

TEST(ProcessUsageTest, SeesMemoryOnceItIsTouched) {
  constexpr std::size_t kSize = std::size_t{64} << 20;
  const ProcessUsage before = ReadProcessUsage();
  void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const ProcessUsage mapped = ReadProcessUsage();
  std::memset(memory, 1, kSize);
  const ProcessUsage touched = ReadProcessUsage();
  ::munmap(memory, kSize);
  EXPECT_GE(mapped.virtual_bytes, before.virtual_bytes + kSize);
  EXPECT_LT(mapped.resident_bytes, before.resident_bytes + kSize / 2);
  EXPECT_GE(touched.resident_bytes, before.resident_bytes + kSize / 2);
}

TEST(ProcessUsageTest, SeesWhatMallocGaveAndGotBack) {
  constexpr std::size_t kBlocks = 4096;
  constexpr std::size_t kSize = 4096;  // small enough for malloc to keep what comes back
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's malloc stands in for the C library's";
#endif
  const ProcessUsage before = ReadProcessUsage();
  std::vector<std::unique_ptr<char[]>> blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(std::make_unique<char[]>(kSize));
  const ProcessUsage given = ReadProcessUsage();
  // Every other block stays, so that no free memory is at the heap's end, where malloc would give it back.
  for (std::size_t i = 0; i < kBlocks; i += 2) blocks[i].reset();
  const ProcessUsage half = ReadProcessUsage();
  EXPECT_GE(given.heap_used_bytes, before.heap_used_bytes + kBlocks * kSize);
  EXPECT_LE(half.heap_used_bytes, given.heap_used_bytes - kBlocks / 2 * kSize);
  EXPECT_GE(half.heap_free_bytes, given.heap_free_bytes + kBlocks / 2 * kSize);
  auto mapped = std::make_unique<char[]>(std::size_t{256} << 20);
  EXPECT_GE(ReadProcessUsage().heap_used_bytes, half.heap_used_bytes + (std::size_t{256} << 20));
}

TEST(ProcessUsageTest, ProcessorTimeGrowsWithWork) {
  const double before = ReadProcessUsage().cpu_seconds;
  while (ReadProcessUsage().cpu_seconds < before + 0.05) {
  }
  EXPECT_GT(before, 0);
}

}  // namespace
}  // namespace slotwise
