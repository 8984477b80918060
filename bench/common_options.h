// Options that all subcommands share, and the device that they choose.
#ifndef SLOTWISE_BENCH_COMMON_OPTIONS_H_
#define SLOTWISE_BENCH_COMMON_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/memory_speed.h"
#include "kernels/shard.h"
#include "server/collective/collective.h"

namespace slotwise::bench {

struct CommonOptions {
  std::string backend = "cpu";
  int threads = 0;  // of each rank; 0: its share of this machine's
  int repeats = 7;
  std::uint64_t seed = 1;
  bool peers = true;
  std::string json;  // a file; empty: none
};

void AddCommonOptions(CLI::App& app, CommonOptions& options);
nlohmann::ordered_json ToJson(const CommonOptions& options);

// A rank's device, the threads behind it (1 on CUDA: one device), and what its memory can do.
struct Place {
  std::unique_ptr<Device> device;
  std::unique_ptr<MemorySpeed> memory;
  int threads = 1;
};

// Throws std::runtime_error if there is no such device.
Place MakePlace(const CommonOptions& options, const Collective& collective);

// Throws std::runtime_error, saying `what`, unless it holds: how a wrong result ends a benchmark.
void Must(bool holds, const std::string& what);

// Throws a Status that is not OK as a std::runtime_error.
inline void Must(const Status& status, const std::string& what) {
  Must(status.ok(), what + ": " + status.message());
}

// The value, or its Status as a std::runtime_error.
template <class T>
T Must(Result<T> result, const std::string& what) {
  Must(result.ok(), what + ": " + result.status().message());
  return std::move(*result);
}

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_COMMON_OPTIONS_H_
