// Pushes steps whose batches depend on a seed alone. A test can push the same batches from Python and compare
// the tables.
//
// Usage: push_batches ADDRESS TABLE SEED STEPS SAMPLES SLOTS DIM plain|weighted|float16.
// tests/e2e/test_cpp_client.py writes the same batches.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "slotwise/client.h"

namespace {

// Draws a stream of numbers: mix64 of a counter that the seed offsets.
class Stream {
 public:
  explicit Stream(std::uint64_t seed) : state_(seed << 32) {}

  std::uint64_t Next() {
    std::uint64_t x = state_++;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdU;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53U;
    return x ^ x >> 33;
  }

 private:
  std::uint64_t state_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) return 2;
  const std::string_view kind = argv[8];
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  const std::uint64_t steps = number(4);
  const std::uint64_t bags = number(5) * number(6);
  const std::uint64_t floats = bags * number(7);
  auto client = slotwise::Client::Connect(
      {argv[1]},
      {.timeout = std::chrono::minutes(10),  // a server may be started again twice meanwhile
       .data_type = kind == "float16" ? slotwise::DataType::kFloat16 : slotwise::DataType::kFloat32});
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().message().c_str());
    return 1;
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
    Stream stream(number(3) + step);
    std::vector<std::uint32_t> offsets{0};
    for (std::uint64_t b = 0; b < bags; ++b)
      offsets.push_back(offsets.back() + static_cast<std::uint32_t>(stream.Next() % 4));
    std::vector<slotwise::Key> keys(offsets.back());
    for (slotwise::Key& key : keys) key = slotwise::Key{stream.Next() % 5000};
    std::vector<float> weights(kind == "weighted" ? keys.size() : 0);
    for (float& weight : weights) weight = static_cast<float>(stream.Next() % 64) / 16;
    std::vector<float> gradients(floats);
    for (float& gradient : gradients) gradient = (static_cast<float>(stream.Next() % 2001) - 1000) / 777;
    const auto applied = client->Push(argv[2], {keys, offsets, weights}, gradients);
    if (!applied.ok()) {
      std::fprintf(stderr, "step %llu: %s\n", static_cast<unsigned long long>(step),
                   applied.status().message().c_str());
      return 1;
    }
  }
  return 0;
}
