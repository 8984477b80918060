// RowLaunches pools rows and applies optimizers to rows, for each type of their values.
//
// Each type of values has its launches compiled in a file of its own, on each backend (rows_*_cpu.cc and
// rows_*_cuda.cu), because there are many: one for each optimizer, kind of gradient, and shape of a tile.
//
// Included by those files, by prepared_batch.inl and by row_updates.inl.
#ifndef SLOTWISE_KERNELS_ROW_LAUNCHES_INL_
#define SLOTWISE_KERNELS_ROW_LAUNCHES_INL_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <variant>

#include "kernels/backend/concept.h"
#include "kernels/body/optimizer.h"
#include "kernels/body/pool.h"
#include "kernels/body/rounding.h"
#include "kernels/body/rows.h"
#include "kernels/body/update.h"
#include "kernels/dispatch.h"
#include "kernels/step_scalars.h"
#include "slotwise/table_options.h"

namespace slotwise {

// The bags that are pooled, and where to (body::PoolBags).
struct BagsToPool {
  std::uint32_t bags;
  const RowIndex* row_of;
  const std::uint32_t* offsets;
  const float* weights;
  const std::uint32_t* places;
  Numbers out;
  const Key* keys = nullptr;  // null: keys without a row add nothing; else they add initial values
  InitializerOptions initializer = {};
};

// The gradients of a step, grouped by row: of short segments by `source`, and of each long one the sum.
struct GroupedGradients {
  body::Segments segments;
  std::variant<body::BagGradients, body::ScaledGradients> source;
  const std::uint32_t* long_segments;  // [longs]
  std::uint32_t longs;
  body::BlockSums sums;
};

// No function is inline, so that a file that declares an instantiation extern does not compile it.
template <Backend B, class Element>
struct RowLaunches {
  using Queue = typename B::Queue;

  // Neither waits.
  static void Pool(Queue& queue, const body::RowsOf<Element>& rows, const BagsToPool& bags);
  static void ApplyOptimizer(Queue& queue, const body::RowsOf<Element>& rows,
                             const OptimizerOptions& optimizer, const StepScalars& scalars,
                             const GroupedGradients& gradients, const body::RoundingOfStep& rounding);
};

template <Backend B, class Element>
void RowLaunches<B, Element>::Pool(Queue& queue, const body::RowsOf<Element>& rows, const BagsToPool& bags) {
  const auto pool = [&]<class Absent>(const Absent& absent) {
    WithElements(bags.out, [&]<class T>(const T*) {
      B::ForEachRun(queue, bags.bags, rows.dim,
                    body::PoolBags<T, Element, Absent>{rows, bags.row_of, bags.offsets, bags.weights,
                                                       bags.places, static_cast<T*>(bags.out.data), absent});
    });
  };
  if (bags.keys == nullptr) return pool(body::AddsNothing{});
  pool(body::AddsInitialValues{bags.initializer, bags.keys});
}

template <Backend B, class Element>
void RowLaunches<B, Element>::ApplyOptimizer(Queue& queue, const body::RowsOf<Element>& rows,
                                             const OptimizerOptions& optimizer, const StepScalars& scalars,
                                             const GroupedGradients& gradients,
                                             const body::RoundingOfStep& rounding) {
  const auto of_step = body::StepRounding<Element>::Of(rounding, scalars.step);
  const body::Segments& segments = gradients.segments;
  body::WithOptimizer(optimizer, scalars, [&]<class Optimizer>(Optimizer with) {
    const body::OptimizerRule<Optimizer> rule{with, body::CoupledDecay(optimizer)};
    std::visit(
        [&]<class Source>(const Source& source) {
          B::ForEachRun(
              queue, segments.segments, rows.dim,
              body::ApplyOptimizerToShort<Optimizer, Source, Element>{segments, source, rows, rule, of_step});
        },
        gradients.source);
    B::ForEachTile(queue, gradients.longs, rows.dim,
                   body::ApplyOptimizerToLong<Optimizer, Element>{segments, gradients.long_segments,
                                                                  gradients.sums, rows, rule, of_step});
  });
}

// Calls use(rows), where `rows` is a RowsOf the type of the values.
template <class Use>
void WithRows(const body::RowsRef& rows, Use use) {
  switch (rows.type) {
    case DataType::kFloat32:
      return use(rows.As<float>());
    case DataType::kFloat16:
      return use(rows.As<body::Float16>());
    case DataType::kBFloat16:
      return use(rows.As<body::BFloat16>());
  }
  throw std::logic_error("rows of a type that is none: " + std::to_string(static_cast<int>(rows.type)));
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ROW_LAUNCHES_INL_
