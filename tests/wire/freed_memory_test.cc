#include "wire/freed_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace slotwise {
namespace {

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Writes and frees blocks as gRPC does a large message's, and returns the page faults.
long FaultsOfMessages(int messages) {
  constexpr std::size_t kBlock = 256 << 10;
  constexpr int kBlocks = 16;
  const long before = PageFaults();
  for (int message = 0; message < messages; ++message) {
    void* blocks[kBlocks];
    for (void*& block : blocks) {
      block = std::malloc(kBlock);
      std::memset(block, 1, kBlock);
    }
    for (void* block : blocks) std::free(block);
  }
  return PageFaults() - before;
}

// A thread has a heap of its own, as gRPC's threads have.
TEST(KeepFreedMemory, SparesThePageFaultsOfMessagesAfterTheFirst) {
#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "another malloc";
#endif
  KeepFreedMemory();
  long first = 0;
  long later = 0;
  std::thread([&] {
    first = FaultsOfMessages(1);
    later = FaultsOfMessages(20);
  }).join();
  EXPECT_GE(first, 16 * 64 / 2) << "the pages of the blocks";
  EXPECT_LT(later, first) << "of 20 messages";
}

}  // namespace
}  // namespace slotwise
