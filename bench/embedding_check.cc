#include "bench/embedding_check.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/common_options.h"
#include "bench/workload.h"
#include "kernels/body/initial_value.h"

namespace slotwise::bench {
namespace {

constexpr std::size_t kChecked = 4096;

// Returns the largest relative error of rounding to a type: half a unit of the last digit.
double RoundingOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 0;  // MustBeClose itself allows for the rounding of float32
    case DataType::kFloat16:
      return 0x1p-11;
    case DataType::kBFloat16:
      return 0x1p-8;
  }
  return 0;
}

// Throws unless `value` is close to `wanted`. `rounding` is an additional allowed error.
void MustBeClose(float value, double wanted, double rounding, const std::string& what) {
  Must(std::abs(value - wanted) <= 1e-4 * (1 + std::abs(wanted)) + rounding,
       "wrong result: " + what + " is " + std::to_string(value) + ", not " + std::to_string(wanted));
}

// Computes the update of docs/semantics.md for t = 1 and a state of 0. `squares` is the row's mean of g · g.
double FirstStep(const OptimizerOptions& o, double w, double g, double squares) {
  const double rate = static_cast<double>(o.learning_rate);
  const double beta1 = static_cast<double>(o.beta1);
  const double beta2 = static_cast<double>(o.beta2);
  const double epsilon = static_cast<double>(o.epsilon);
  const double size = std::abs(g);
  switch (o.kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kMomentum:
      return w - rate * g;
    case OptimizerKind::kNesterov:
      return w - (1 + static_cast<double>(o.momentum)) * rate * g;
    case OptimizerKind::kAdaGrad:
      return w - rate * g / (size + epsilon);
    case OptimizerKind::kRowWiseAdaGrad:
      return w - rate * g / (std::sqrt(squares) + epsilon);
    case OptimizerKind::kRmsProp:
      return w - rate * g / (std::sqrt(1 - beta2) * size + epsilon);
    case OptimizerKind::kAdam: {
      const double alpha = rate * std::sqrt(1 - beta2) / (1 - beta1);
      return w - alpha * (1 - beta1) * g / (std::sqrt(1 - beta2) * size + epsilon);
    }
    case OptimizerKind::kFtrl: {
      const double z = g - size / rate * w;
      return -z / ((static_cast<double>(o.ftrl_beta) + size) / rate);
    }
    default:
      throw std::invalid_argument("this bench has no formula of " + std::string(ToString(o.kind)) +
                                  " to check results by");
  }
}

double First(const TableOptions& options, std::uint32_t row, std::uint32_t j) {
  return static_cast<double>(
      RoundedTo(options.row_dtype, body::InitialValue(options.initializer, KeyOf(row), j)));
}

void CheckLookup(ShardedTable& table, const TableOptions& options, const Batch& batch) {
  table.Lookup();
  const std::vector<float> pooled = table.Pooled();
  const std::size_t step = std::max<std::size_t>(1, table.my_bags() / kChecked);
  for (std::size_t b = 0; b < table.my_bags(); b += step) {
    const auto bag = batch.rows.subspan((table.first_bag() + b) * batch.hot, batch.hot);
    for (std::uint32_t j = 0; j < options.dim; ++j) {
      double sum = 0;
      double sizes = 0;  // at least the sum of the partial sums' magnitudes
      for (const std::uint32_t row : bag) {
        const double value = First(options, row, j);
        sum += value;
        sizes += std::abs(value);
      }
      MustBeClose(pooled[b * options.dim + j], sum, sizes * RoundingOf(table.partials()),
                  "element " + std::to_string(j) + " of a looked-up bag");
    }
  }
}

// Sums the gradients of some rows in the batch with plain loops over the whole batch.
std::unordered_map<std::uint32_t, std::vector<double>> SumGradients(const Batch& batch, std::uint32_t dim) {
  std::unordered_map<std::uint32_t, std::vector<double>> sums;
  const std::size_t step = std::max<std::size_t>(1, batch.rows.size() / kChecked);
  for (std::size_t i = 0; i < batch.rows.size(); i += step) sums[batch.rows[i]].resize(dim);
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    const auto found = sums.find(batch.rows[i]);
    if (found == sums.end()) continue;
    for (std::uint32_t j = 0; j < dim; ++j) {
      found->second[j] += static_cast<double>(GradientOf(i / batch.hot, j));
    }
  }
  return sums;
}

}  // namespace

void CheckLookupAndStep(ShardedTable& table, const TableOptions& options, const Batch& batch) {
  const std::vector<Key> keys = KeysOf(batch.rows);
  const auto set_batch = [&] {
    table.SetBatch(keys, batch.bags, batch.hot, {});
    std::vector<float> gradients(std::size_t{table.my_bags()} * options.dim);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] =
          GradientOf(table.first_bag() + i / options.dim, static_cast<std::uint32_t>(i % options.dim));
    }
    table.SetBatch(keys, batch.bags, batch.hot, gradients);
  };
  set_batch();
  CheckLookup(table, options, batch);
  table.TrainStep(ScalarsOfStep(options.optimizer, 1));

  const auto sums = SumGradients(batch, options.dim);
  std::vector<std::uint32_t> touched;
  for (const auto& [row, sum] : sums) touched.push_back(row);
  std::ranges::sort(touched);
  table.SetBatch(KeysOf(touched), static_cast<std::uint32_t>(touched.size()), 1, {});
  table.Lookup();
  const std::vector<float> rows = table.Pooled();
  // By chance a weight becomes either of its neighbours.
  const double rounding = RoundingOf(table.partials()) +
                          (options.rounding == Rounding::kNearest ? 1 : 2) * RoundingOf(options.row_dtype);
  for (std::size_t b = 0; b < table.my_bags(); ++b) {
    const std::uint32_t row = touched[table.first_bag() + b];
    const std::vector<double>& g = sums.at(row);
    double squares = 0;
    for (const double element : g) squares += element * element / options.dim;
    for (std::uint32_t j = 0; j < options.dim; ++j) {
      const double wanted = FirstStep(options.optimizer, First(options, row, j), g[j], squares);
      MustBeClose(rows[b * options.dim + j], wanted, std::abs(wanted) * rounding,
                  "element " + std::to_string(j) + " of a row after its first step");
    }
  }
  set_batch();
}

}  // namespace slotwise::bench
