// A new row's values are a function of (seed, key, element) alone, so they do not depend on scheduling, the
// number of ranks or the backend (docs/semantics.md, "Ownership and initial values").
//
// The function uses only + - * / and square roots, so every machine computes the same bits: the normal
// distribution's quantile is a rational function, and its logarithm is a series here rather than a library's.
#ifndef SLOTWISE_KERNELS_BODY_INITIAL_VALUE_H_
#define SLOTWISE_KERNELS_BODY_INITIAL_VALUE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/body/philox.h"
#include "kernels/body/portable.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise::body {

// Returns ln x, to about 1e-7. x = m · 2^e with m in [0.75, 1.5), and ln m = 2 · artanh((m - 1) / (m + 1)).
// REQUIRES: x is positive and normal.
SLOTWISE_HD inline float Logarithm(float x) {
  std::uint32_t bits = 0;
  memcpy(&bits, &x, sizeof(bits));
  constexpr std::uint32_t kThreeQuarters = 0x3F400000;  // 0.75F
  const std::int32_t e = static_cast<std::int32_t>(bits - kThreeQuarters) >> 23;
  bits -= static_cast<std::uint32_t>(e) << 23;
  float m = 0;
  memcpy(&m, &bits, sizeof(m));
  const float t = (m - 1.0F) / (m + 1.0F);
  const float t2 = t * t;
  const float series = 1.0F + t2 * (1.0F / 3 + t2 * (1.0F / 5 + t2 * (1.0F / 7 + t2 * (1.0F / 9))));
  return static_cast<float>(e) * 0.693147181F + 2.0F * t * series;
}

// Returns the standard normal distribution's quantile of p, to about 1e-6: PPND7 of Wichura, "Algorithm AS
// 241", Applied Statistics 37 (1988). REQUIRES: 1e-10 < p < 1.
SLOTWISE_HD inline float NormalQuantile(float p) {
  const float q = p - 0.5F;
  if (fabsf(q) <= 0.425F) {
    const float r = 0.180625F - q * q;
    return q * (((59.109374720F * r + 159.29113202F) * r + 50.434271938F) * r + 3.3871327179F) /
           (((67.187563600F * r + 78.757757664F) * r + 17.895169469F) * r + 1.0F);
  }
  const float r = sqrtf(-Logarithm(q < 0 ? p : 1.0F - p)) - 1.6F;
  const float tail = (((0.17023821103F * r + 1.3067284816F) * r + 2.7568153900F) * r + 1.4234372777F) /
                     ((0.12021132975F * r + 0.73700164250F) * r + 1.0F);
  return q < 0 ? -tail : tail;
}

SLOTWISE_HD inline float InitialValue(const InitializerOptions& options, Key key, std::uint32_t element) {
  if (options.kind == InitializerKind::kConstant) return options.mean;
  const std::uint64_t k = Value(key);
  const PhiloxWords words =
      Philox4x32({{static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32), element / 4, 0}},
                 static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32));
  const std::uint32_t bits = words.word[element % 4] >> 8;
  if (options.kind == InitializerKind::kUniform) {
    return options.low + static_cast<float>(bits) * 0x1p-24F * (options.high - options.low);
  }
  // u lies in the middle of its interval and has 23 bits, so it is exact and neither 0 nor 1.
  const float u = (static_cast<float>(bits >> 1) + 0.5F) * 0x1p-23F;
  return options.mean + options.deviation * NormalQuantile(u);
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_INITIAL_VALUE_H_
