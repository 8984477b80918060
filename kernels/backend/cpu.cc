#include "kernels/backend/cpu.h"

#include <array>

namespace slotwise {

CpuBackend::Chunks::Chunks(const Queue& queue, std::uint32_t size) : n(size) {
  // A few chunks a thread even out threads that are slowed by others.
  const auto threads = static_cast<std::uint32_t>(queue.threads.count());
  const std::uint32_t most = threads == 1 ? 1 : threads * 4;
  count = std::min(most, (n + kGrain - 1) / kGrain);
}

void CpuBackend::ExclusiveScan(Queue& queue, const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  const Chunks chunks(queue, n);
  std::uint32_t* before = queue.places.Reserve(queue, chunks.count);
  ForEachChunk(queue, chunks, [&](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = begin; i < end; ++i) sum += in[i];
    before[chunk] = sum;
  });
  std::uint32_t total = 0;
  for (std::uint32_t c = 0; c < chunks.count; ++c) total += std::exchange(before[c], total);
  ForEachChunk(queue, chunks, [&](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
    std::uint32_t sum = before[chunk];
    for (std::uint32_t i = begin; i < end; ++i) {
      const std::uint32_t next = sum + in[i];  // `in` may be `out`
      out[i] = sum;
      sum = next;
    }
  });
  out[n] = total;
}

// Sorts by the least significant digit first; within a digit's pass, chunks write one behind the other, so
// the sort is stable. Between passes a pair is one word: a pass writes to as many places at once as there are
// digits, and twice as many would be too many for the processor's buffers.
void CpuBackend::SortPairs(Queue& queue, PairBuffers& pairs, std::uint32_t n, std::uint32_t bits) {
  constexpr std::uint32_t kMostDigitBits = 11;
  const std::uint32_t passes = (bits + kMostDigitBits - 1) / kMostDigitBits;
  if (passes == 0) return;
  const std::uint32_t digit_bits = (bits + passes - 1) / passes;
  const std::uint32_t digits = 1U << digit_bits;
  const Chunks chunks(queue, n);
  std::uint32_t* places = queue.places.Reserve(queue, std::size_t{chunks.count} * digits);
  std::array<CpuPair*, 2> words{};
  for (std::uint32_t w = 0; w < std::min(passes - 1, 2U); ++w) words[w] = queue.sorted[w].Reserve(queue, n);

  // What the loops use is captured by value: what they write might be a reference's target, for all the
  // compiler knows.
  const auto sort_by_digit = [&](std::uint32_t shift, auto read, auto write) {
    const auto digit = [=](std::uint32_t key) { return (key >> shift) & (digits - 1); };
    ForEachChunk(queue, chunks, [=](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
      std::uint32_t* count = &places[std::size_t{chunk} * digits];
      std::fill_n(count, digits, 0);
      for (std::uint32_t i = begin; i < end; ++i) ++count[digit(read(i).key)];
    });
    std::uint32_t total = 0;
    for (std::uint32_t d = 0; d < digits; ++d) {
      for (std::uint32_t chunk = 0; chunk < chunks.count; ++chunk) {
        total += std::exchange(places[std::size_t{chunk} * digits + d], total);
      }
    }
    ForEachChunk(queue, chunks, [=](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
      std::uint32_t* place = &places[std::size_t{chunk} * digits];
      for (std::uint32_t i = begin; i < end; ++i) {
        const CpuPair pair = read(i);
        write(place[digit(pair.key)]++, pair);
      }
    });
  };

  const int from = pairs.current;
  if (passes == 1) pairs.current = 1 - from;  // what is read may not be written to in the same pass
  const auto read_arrays = [keys = pairs.keys[from], values = pairs.values[from]](std::uint32_t i) {
    return CpuPair{keys[i], values[i]};
  };
  const auto write_arrays = [keys = pairs.keys[pairs.current], values = pairs.values[pairs.current]](
                                std::uint32_t to, CpuPair pair) {
    keys[to] = pair.key;
    values[to] = pair.value;
  };
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    const std::uint32_t shift = pass * digit_bits;
    const auto read_words = [from = words[(pass + 1) % 2]](std::uint32_t i) { return from[i]; };
    const auto write_words = [to = words[pass % 2]](std::uint32_t place, CpuPair pair) { to[place] = pair; };
    const bool last = pass + 1 == passes;
    if (passes == 1) {
      sort_by_digit(shift, read_arrays, write_arrays);
    } else if (pass == 0) {
      sort_by_digit(shift, read_arrays, write_words);
    } else if (last) {
      sort_by_digit(shift, read_words, write_arrays);
    } else {
      sort_by_digit(shift, read_words, write_words);
    }
  }
}

}  // namespace slotwise
