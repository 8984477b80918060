// Defines the options that all subcommands share, and makes the device that they choose.
#ifndef SLOTWISE_BENCH_COMMON_OPTIONS_H_
#define SLOTWISE_BENCH_COMMON_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
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
  int threads = 0;  // threads of each rank; 0: the rank's share of the machine's threads
  int repeats = 7;
  std::uint64_t seed = 1;
  bool peers = true;
  std::string json;  // the file to write; empty: no file
};

// Options for a table of `rows` rows, and for batches of `batch` samples whose keys are drawn from these
// rows.
struct BatchOptions : CommonOptions {
  std::uint32_t rows = 1'000'000;
  std::uint32_t dim = 64;
  std::uint32_t slots = 26;
  std::uint32_t hot = 4;  // keys a bag
  std::uint32_t batch = 16'384;
  double alpha = 0;  // exponent of the power law over rows; 0 is uniform

  std::uint32_t bags() const { return batch * slots; }
  std::size_t keys() const { return std::size_t{batch} * slots * hot; }
};

// The secret of benchmarks' hash tables, which is fixed so that runs compare.
inline constexpr HashSecret kBenchSecret{0x7365'6372'6574'206F, 0x6620'6120'6265'6E63};

void AddCommonOptions(CLI::App& app, CommonOptions& options);
nlohmann::ordered_json ToJson(const CommonOptions& options);

// `what_rows` and `what_batch` are the help texts of these two options.
void AddBatchOptions(CLI::App& app, BatchOptions& options, const std::string& what_rows,
                     const std::string& what_batch);
nlohmann::ordered_json ToJson(const BatchOptions& options);
// Returns "1000000 rows x 64, 16384 x 26 bags of 4 keys".
std::string TitleOf(const BatchOptions& options);

// A rank's device, the device's number of threads (1 on CUDA), and the speed of its memory.
struct Place {
  std::unique_ptr<Device> device;
  std::unique_ptr<MemorySpeed> memory;
  int threads = 1;
};

// Makes the device that the options name. Throws std::runtime_error if there is no such device.
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
