#include "bench/bench_table.h"

#include <algorithm>
#include <vector>

#include "bench/workload.h"

namespace slotwise::bench {

void CheckTable(Device& device, BenchTable& table, std::uint64_t first, std::uint32_t keys,
                std::span<const std::uint32_t> drawn) {
  Must(table.shard().Usage().rows == keys, "wrong result: not as many rows as keys");
  constexpr std::uint32_t kNumbers = 65536;
  std::vector<std::uint32_t> rows(drawn.begin(), drawn.end());
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  std::vector<float> gradients(rows.size());
  std::ranges::transform(rows, gradients.begin(),
                         [](std::uint32_t row) { return -static_cast<float>(row % kNumbers); });
  std::vector<Key> present(rows.size());
  std::ranges::transform(rows, present.begin(), [&](std::uint32_t row) { return KeyOf(first + row); });
  {
    const OnDevice on_device(device, present);
    const OnDevice offsets(device, EvenOffsets(present.size(), 1));
    const OnDevice g(device, gradients);
    table.FindOrInsert(on_device, offsets).Update(g.data(), {.learning_rate = 1});
  }

  std::vector<Key> asked(drawn.size());
  std::ranges::transform(drawn, asked.begin(), [&](std::uint32_t row) { return KeyOf(first + row); });
  const std::vector<Key> absent = KeysOfRange(std::uint64_t{1} << 40, drawn.size());
  asked.insert(asked.end(), absent.begin(), absent.end());
  const OnDevice on_device(device, asked);
  const OnDevice offsets(device, EvenOffsets(asked.size(), 1));
  const OnDevice<float> values(device, asked.size());
  table.Find(on_device, offsets).Pool(values.data());
  const std::vector<float> found = values.Host();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    Must(found[i] == static_cast<float>(1 + drawn[i] % kNumbers), "wrong result: a key has another's row");
    Must(found[drawn.size() + i] == 0, "wrong result: a key that was never inserted has a row");
  }
  Must(table.shard().Usage().rows == keys, "wrong result: present keys added rows");
}

}  // namespace slotwise::bench
