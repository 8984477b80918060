#include "bench/common_options.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace slotwise::bench {

void AddCommonOptions(CLI::App& app, CommonOptions& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--backend", options.backend, "cpu or cuda (ranks take this machine's devices in turn)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--threads", options.threads, "CPU threads a rank; 0 is this rank's share of all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", options.repeats,
                 "timed runs of each, in turn with the peers; the median counts")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of keys and batches");
  app.add_flag("!--no-peers", options.peers, "do not run the peers");
  app.add_option("--json", options.json, "also write the report to this file, as JSON");
}

nlohmann::ordered_json ToJson(const CommonOptions& options) {
  return {{"backend", options.backend},
          {"threads", options.threads},
          {"repeats", options.repeats},
          {"seed", options.seed}};
}

void AddBatchOptions(CLI::App& app, BatchOptions& options, const std::string& what_rows,
                     const std::string& what_batch) {
  app.option_defaults()->always_capture_default();
  app.add_option("--rows", options.rows, what_rows)->check(CLI::PositiveNumber);
  app.add_option("--dim", options.dim, "elements a row")->check(CLI::Range(1, 4096));
  app.add_option("--slots", options.slots, "bags a sample")->check(CLI::Range(1, 4096));
  app.add_option("--hot", options.hot, "keys a bag")->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch, what_batch)->check(CLI::PositiveNumber);
  app.add_option("--alpha", options.alpha, "exponent of the power law over rows; 0 is uniform")
      ->check(CLI::Range(0.0, 10.0));
  AddCommonOptions(app, options);
}

nlohmann::ordered_json ToJson(const BatchOptions& options) {
  nlohmann::ordered_json json = ToJson(static_cast<const CommonOptions&>(options));
  json.update({{"rows", options.rows},
               {"dim", options.dim},
               {"slots", options.slots},
               {"hot", options.hot},
               {"batch", options.batch},
               {"alpha", options.alpha}});
  return json;
}

std::string TitleOf(const BatchOptions& options) {
  return std::to_string(options.rows) + " rows x " + std::to_string(options.dim) + ", " +
         std::to_string(options.batch) + " x " + std::to_string(options.slots) + " bags of " +
         std::to_string(options.hot) + " keys";
}

Place MakePlace(const CommonOptions& options, const Collective& collective) {
  Place place;
#ifdef SLOTWISE_CUDA
  if (options.backend == "cuda") {
    const int devices = std::max(1, CudaDeviceCount());
    place.device = Must(MakeCudaDevice(collective.local_rank() % devices), "no device");
    place.memory = MakeCudaMemorySpeed();
    return place;
  }
#else
  Must(options.backend == "cpu", "this build of Slotwise has no CUDA: build the `cuda` preset");
#endif
  const int processors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  place.threads = options.threads > 0 ? options.threads : std::max(1, processors / collective.local_size());
  place.device = MakeCpuDevice(place.threads);
  place.memory = MakeHostMemorySpeed(place.threads);
  return place;
}

void Must(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

}  // namespace slotwise::bench
