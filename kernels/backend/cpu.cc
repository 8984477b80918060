#include "kernels/backend/cpu.h"

namespace slotwise {

CpuBackend::Chunks::Chunks(const Queue& queue, std::uint32_t size) : n(size) {
  // A few chunks a thread even out threads that are slowed by others.
  const auto most = static_cast<std::uint32_t>(queue.threads.count()) * 4;
  count = std::min(most, (n + kGrain - 1) / kGrain);
}

std::uint32_t CpuBackend::ExclusiveScan(Queue& queue, const std::uint32_t* in, std::uint32_t n,
                                        std::uint32_t* out) {
  const Chunks chunks(queue, n);
  std::vector<std::uint32_t> before(chunks.count);
  ForEachChunk(queue, chunks, [&](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = begin; i < end; ++i) sum += in[i];
    before[chunk] = sum;
  });
  std::uint32_t total = 0;
  for (std::uint32_t& b : before) total += std::exchange(b, total);
  ForEachChunk(queue, chunks, [&](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
    std::uint32_t sum = before[chunk];
    for (std::uint32_t i = begin; i < end; ++i) {
      const std::uint32_t next = sum + in[i];  // `in` may be `out`
      out[i] = sum;
      sum = next;
    }
  });
  out[n] = total;
  return total;
}

// Least significant digit first; within a digit's pass, chunks write one behind the other, so the sort is stable.
void CpuBackend::SortPairs(Queue& queue, PairBuffers& pairs, std::uint32_t n, std::uint32_t bits) {
  constexpr std::uint32_t kDigitBits = 11;
  constexpr std::uint32_t kDigits = 1U << kDigitBits;
  const Chunks chunks(queue, n);
  std::vector<std::uint32_t> places(std::size_t{chunks.count} * kDigits);

  for (std::uint32_t shift = 0; shift < bits; shift += kDigitBits) {
    const std::uint32_t* keys = pairs.keys[pairs.current];
    const std::uint32_t* values = pairs.values[pairs.current];
    std::uint32_t* sorted_keys = pairs.keys[1 - pairs.current];
    std::uint32_t* sorted_values = pairs.values[1 - pairs.current];
    const auto digit = [&](std::uint32_t i) { return (keys[i] >> shift) & (kDigits - 1); };

    ForEachChunk(queue, chunks, [&](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
      std::uint32_t* count = &places[std::size_t{chunk} * kDigits];
      std::fill_n(count, kDigits, 0);
      for (std::uint32_t i = begin; i < end; ++i) ++count[digit(i)];
    });
    std::uint32_t total = 0;
    for (std::uint32_t d = 0; d < kDigits; ++d) {
      for (std::uint32_t chunk = 0; chunk < chunks.count; ++chunk) {
        total += std::exchange(places[std::size_t{chunk} * kDigits + d], total);
      }
    }
    ForEachChunk(queue, chunks, [&](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
      std::uint32_t* place = &places[std::size_t{chunk} * kDigits];
      for (std::uint32_t i = begin; i < end; ++i) {
        const std::uint32_t to = place[digit(i)]++;
        sorted_keys[to] = keys[i];
        sorted_values[to] = values[i];
      }
    });
    pairs.current = 1 - pairs.current;
  }
}

}  // namespace slotwise
