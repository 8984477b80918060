// Trains one row of a table on the CPU, so that tests can check an optimizer's formula:
//
//     one_row OPTIONS STEPS GRADIENT...     OPTIONS: protobuf's JSON of TableOptions
//
// prints the options as the table has them, and the row with its state before and after the steps.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/shard.h"
#include "wire/json.h"

namespace slotwise {
namespace {

template <class T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "one_row: %s\n", result.status().message().c_str());
  std::exit(1);
}

int Run(const TableOptions& options, std::uint64_t steps, const std::vector<float>& gradient) {
  const auto device = MakeCpuDevice(1);
  const auto shard = Must(device->MakeShard(options, ShardPlace{.secret = HashSecret(1, 2)}));
  const std::vector<Key> keys{Key{7}};
  const std::vector<std::uint32_t> offsets{0, 1};
  const BatchView batch{.keys = keys, .offsets = offsets, .weights = {}};
  Must(shard->PrepareInsert(batch).Insert());
  const std::vector<float> before = shard->Read(keys).records;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    Must(shard->PreparePush(batch).Insert()).Update(gradient.data(), ScalarsOfStep(options.optimizer, step));
  }
  nlohmann::json said;
  said["options"] = nlohmann::json::parse(ToJson(options));
  said["before"] = before;
  said["after"] = shard->Read(keys).records;
  std::puts(said.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace slotwise

int main(int argc, char** argv) {
  const auto options = slotwise::Must(slotwise::TableOptionsFromJson(argc > 2 ? argv[1] : ""));
  std::vector<float> gradient;
  for (int i = 3; i < argc; ++i) gradient.push_back(std::strtof(argv[i], nullptr));
  gradient.resize(options.dim);
  return slotwise::Run(options, std::strtoull(argv[2], nullptr, 10), gradient);
}
