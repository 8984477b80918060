// Defines the options that all subcommands share, and makes the device that they choose.
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
  int threads = 0;  // of each rank; 0: its share of the machine's threads
  int repeats = 7;
  std::uint64_t seed = 1;
  bool peers = true;
  std::string json;  // the file to write; empty: no file
};

// The secret of benchmarks' hash tables, which is fixed so that runs compare.
inline constexpr HashSecret kBenchSecret{0x7365'6372'6574'206F, 0x6620'6120'6265'6E63};

void AddCommonOptions(CLI::App& app, CommonOptions& options);
nlohmann::ordered_json ToJson(const CommonOptions& options);

// A rank's device, the device's threads (1 on CUDA, which is one device), and the speed of its memory.
struct Place {
  std::unique_ptr<Device> device;
  std::unique_ptr<MemorySpeed> memory;
  int threads = 1;
};

// Makes what the options name. Throws std::runtime_error if there is no such device.
Place MakePlace(const CommonOptions& options, const Collective& collective);

// Throws std::runtime_error, with `what`, unless `holds`. A wrong result ends a benchmark in this way.
void Must(bool holds, const std::string& what);

// Throws std::runtime_error unless `status` is OK.
inline void Must(const Status& status, const std::string& what) {
  Must(status.ok(), what + ": " + status.message());
}

// Returns the value. Throws std::runtime_error if there is only a Status.
template <class T>
T Must(Result<T> result, const std::string& what) {
  Must(result.ok(), what + ": " + result.status().message());
  return std::move(*result);
}

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_COMMON_OPTIONS_H_
