// slotwise-bench: one device's tables, timed, beside the floor that its memory sets.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "bench/bandwidth.h"
#include "bench/embedding.h"

namespace {

using slotwise::OptimizerKind;

void Print(const char* what, const slotwise::bench::Measured& measured, double keys, double bandwidth) {
  const double floor = measured.bytes / bandwidth;
  std::printf("%-8s %10.2f ms %10.2f M keys/s %10.2f ms floor %7.2f x floor\n", what, measured.seconds * 1e3,
              keys / measured.seconds / 1e6, floor * 1e3, measured.seconds / floor);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Times a pooled lookup and a training step of one shard. The result is checked first.\n"
      "The floor is the bytes that must move over this machine's copy bandwidth.");
  app.option_defaults()->always_capture_default();
  slotwise::bench::EmbeddingOptions options;
  int threads = 0;
  app.add_option("--rows", options.rows, "rows in the table")->check(CLI::PositiveNumber);
  app.add_option("--dim", options.dim, "elements a row")->check(CLI::Range(1, 4096));
  app.add_option("--slots", options.slots, "bags a sample")->check(CLI::Range(1, 4096));
  app.add_option("--hot", options.hot, "keys a bag")->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch, "samples")->check(CLI::PositiveNumber);
  app.add_option("--alpha", options.alpha, "exponent of the power law over rows; 0 is uniform");
  app.add_option("--optimizer", options.optimizer, "sgd, adagrad or adam")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, OptimizerKind>{{"sgd", OptimizerKind::kSgd},
                                                                       {"adagrad", OptimizerKind::kAdaGrad},
                                                                       {"adam", OptimizerKind::kAdam}}));
  app.add_option("--threads", threads, "CPU threads; 0 is all")->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", options.repeats, "timed runs, of which the median counts")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of the batch's keys");
  CLI11_PARSE(app, argc, argv);

  try {
    const auto device = slotwise::MakeCpuDevice(threads);
    const auto result = slotwise::bench::RunEmbedding(*device, options);
    const double bandwidth = slotwise::bench::HostCopyBandwidth(threads);
    const double keys = static_cast<double>(options.batch) * options.slots * options.hot;
    std::printf("%s, %u rows x %u, %u x %u bags of %u keys, alpha %.2f, copy %.1f GB/s\n",
                device->Name().c_str(), options.rows, options.dim, options.batch, options.slots, options.hot,
                options.alpha, bandwidth / 1e9);
    Print("lookup", result.lookup, keys, bandwidth);
    Print("step", result.step, keys, bandwidth);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "slotwise-bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
