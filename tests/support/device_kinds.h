// The kinds of device that tests of several ranks run on: one a rank, as a server's ranks take them.
//
// Thread-safety: plain values.
#ifndef SLOTWISE_TESTS_SUPPORT_DEVICE_KINDS_H_
#define SLOTWISE_TESTS_SUPPORT_DEVICE_KINDS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <ostream>
#include <utility>

#include "kernels/shard.h"
#include "tests/support/apart_device.h"
#include "tests/support/batches.h"

namespace slotwise::test {

struct DeviceKind {
  const char* name;
  // By the rank's place among those of its machine; null if this machine has none.
  std::unique_ptr<Device> (*make)(int local_rank);
};
inline std::ostream& operator<<(std::ostream& out, const DeviceKind& kind) { return out << kind.name; }

inline constexpr DeviceKind kCpu{"Cpu", [](int) { return MakeCpuDevice(1); }};
inline constexpr DeviceKind kApart{"ApartFromTheHost", [](int) { return MakeApartDevice(); }};
// Its work is done in an order drawn from a seed, which it prints for a test that fails.
inline constexpr DeviceKind kApartDrawn{
    "ApartInADrawnOrder", [](int local_rank) {
      const std::uint64_t seed = Seed(20261122);
      if (local_rank == 0) {
        std::printf("ApartInADrawnOrder: %s\n", SeedNote(seed).c_str());
      }
      return MakeSeededApartDevice(seed + static_cast<std::uint64_t>(local_rank));
    }};
inline constexpr DeviceKind kCuda{"Cuda", [](int local_rank) -> std::unique_ptr<Device> {
                                    const int devices = CudaDeviceCount();
                                    if (devices == 0) return nullptr;
                                    return std::move(*MakeCudaDevice(local_rank % devices));
                                  }};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_DEVICE_KINDS_H_
