// The kinds of device on which tests of several ranks run, one device a rank, as in a server.
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
  // Makes the device for a rank's index on its machine; null if the machine has none.
  std::unique_ptr<Device> (*make)(int local_rank);
};
inline std::ostream& operator<<(std::ostream& out, const DeviceKind& kind) { return out << kind.name; }

inline constexpr DeviceKind kCpu{"Cpu", [](int) { return MakeCpuDevice(1); }};
inline constexpr DeviceKind kApart{"ApartFromTheHost", [](int) { return MakeApartDevice(); }};
// Does its work in an order drawn from a seed, and prints the seed for a test that fails.
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
