#include "bench/embedding.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

namespace slotwise::bench {
namespace {

// Row numbers 0 .. rows - 1 by a power law: P(r) ~ (r + 1)^-alpha, by inverting its continuous form.
class PowerLaw {
 public:
  PowerLaw(std::uint32_t rows, double alpha) : rows_(rows), power_(1 - alpha) {}

  std::uint32_t operator()(std::mt19937_64& random) const {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    const double n = rows_ + 1.0;
    const double x =
        std::abs(power_) < 1e-9 ? std::pow(n, u) : std::pow(1 + u * (std::pow(n, power_) - 1), 1 / power_);
    return std::min(rows_ - 1, static_cast<std::uint32_t>(x - 1));
  }

 private:
  std::uint32_t rows_;
  double power_;
};

// Keys are spread over 64 bits, as hashed ids are.
Key KeyOf(std::uint32_t row) { return Key{(row + 1) * 0x9E3779B97F4A7C15ULL}; }

void Must(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// A device array that lives as long as the benchmark.
template <class T>
class OnDevice {
 public:
  OnDevice(Device& device, const std::vector<T>& host)
      : device_(device),
        data_(static_cast<T*>(device.Allocate(host.size() * sizeof(T)))),
        size_(host.size()) {
    device.Upload(data_, host.data(), host.size() * sizeof(T));
  }
  ~OnDevice() { device_.Free(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> Host() const {
    std::vector<T> host(size_);
    device_.Download(host.data(), data_, size_ * sizeof(T));
    return host;
  }

 private:
  Device& device_;
  T* data_;
  std::size_t size_;
};

double Median(int repeats, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i > 0) seconds.push_back(time.count());  // the first warms up
  }
  std::ranges::nth_element(seconds, seconds.begin() + repeats / 2);
  return seconds[static_cast<std::size_t>(repeats) / 2];
}

}  // namespace

EmbeddingResult RunEmbedding(Device& device, const EmbeddingOptions& o) {
  TableOptions table;
  table.name = TableName("bench");
  table.dim = o.dim;
  table.slots = o.slots;
  table.optimizer.kind = o.optimizer;
  table.optimizer.learning_rate = 1;
  table.initializer = {1, 1, 0};  // all rows are ones, so a bag's sum is its size
  table.initial_rows = o.rows;
  auto made = device.MakeShard(table, {});
  if (!made.ok()) throw std::runtime_error(made.status().message());
  Shard& shard = **made;

  std::vector<Key> all(o.rows);
  std::vector<std::uint32_t> each(o.rows + 1);
  for (std::uint32_t r = 0; r < o.rows; ++r) all[r] = KeyOf(r), each[r + 1] = r + 1;
  {
    const OnDevice keys(device, all);
    const OnDevice offsets(device, each);
    Must(shard.Prepare({{keys.data(), keys.size()}, {offsets.data(), offsets.size()}}, true).ok(),
         "no room for rows");
    shard.Insert();
  }

  const std::uint32_t bags = o.batch * o.slots;
  std::mt19937_64 random(o.seed);
  const PowerLaw row_of(o.rows, o.alpha);
  std::vector<Key> batch_keys(std::size_t{bags} * o.hot);
  for (Key& key : batch_keys) key = KeyOf(row_of(random));
  std::vector<std::uint32_t> batch_offsets(bags + std::size_t{1});
  for (std::uint32_t b = 0; b <= bags; ++b) batch_offsets[b] = b * o.hot;
  std::vector<Key> touched = batch_keys;
  std::ranges::sort(touched);
  const double touched_rows = static_cast<double>(std::ranges::unique(touched).begin() - touched.begin());

  const OnDevice keys(device, batch_keys);
  const OnDevice offsets(device, batch_offsets);
  const OnDevice pooled(device, std::vector<float>(std::size_t{bags} * o.dim));
  const OnDevice gradients(device, std::vector<float>(std::size_t{bags} * o.dim, 0.0F));
  const BatchView batch{{keys.data(), keys.size()}, {offsets.data(), offsets.size()}};
  const StepScalars scalars = ScalarsOfStep(table.optimizer, 1);
  const auto lookup = [&] {
    Must(shard.Prepare(batch, false).ok(), "Prepare failed");
    shard.Pool(pooled.data());
  };
  const auto step = [&] {
    Must(shard.Prepare(batch, true).ok(), "Prepare failed");
    shard.Insert();
    shard.Pool(pooled.data());
    shard.Update(gradients.data(), scalars);
  };

  const auto check = [&] {
    lookup();
    Must(std::ranges::all_of(pooled.Host(), [&](float v) { return v == static_cast<float>(o.hot); }),
         "wrong result: a bag of rows of ones is not its size");
  };
  check();
  step();  // with gradients of zero no row moves
  check();
  Must(shard.Usage().rows == o.rows, "wrong result: a lookup of present keys added rows");

  const double n = static_cast<double>(batch_keys.size());
  const double row = 4.0 * o.dim;
  const double state = 4.0 * StateFloats(o.optimizer, o.dim);
  constexpr double kProbe = 64;  // a cache line
  const double out = static_cast<double>(bags) * row;
  EmbeddingResult result;
  result.lookup.bytes = n * (sizeof(Key) + kProbe + row) + out;
  // And: each occurrence's gradient read, each touched row and its state read and written.
  result.step.bytes = result.lookup.bytes + n * row + 2 * touched_rows * (row + state);
  result.lookup.seconds = Median(o.repeats, lookup);
  result.step.seconds = Median(o.repeats, step);
  return result;
}

}  // namespace slotwise::bench
