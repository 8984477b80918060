#include "tests/support/oracle_update.h"

#include <cmath>

namespace slotwise::test {
namespace {

// Returns Adam's learning rate with the bias corrections of step t.
float CorrectedRate(const OptimizerOptions& o, std::uint64_t step) {
  const auto t = static_cast<double>(step);
  return static_cast<float>(double{o.learning_rate} * std::sqrt(1 - std::pow(double{o.beta2}, t)) /
                            (1 - std::pow(double{o.beta1}, t)));
}

void Momentum(const OptimizerOptions& o, float g, float& w, float& v) {
  v = o.momentum * v - o.learning_rate * g;
  w = w + v;
}

void Nesterov(const OptimizerOptions& o, float g, float& w, float& a) {
  const float next = o.momentum * a - o.learning_rate * g;
  w = w + ((-o.momentum * a) + (1.0F + o.momentum) * next);
  a = next;
}

void AdaGrad(const OptimizerOptions& o, float g, float& w, float& s) {
  s = s + g * g;
  w = w - (o.learning_rate * g) / (std::sqrt(s) + o.epsilon);
}

void RowWiseAdaGrad(const OptimizerOptions& o, const std::vector<float>& g, const OracleRounding& round,
                    std::vector<float>& w, float& s) {
  float squares = 0.0F;
  for (const float element : g) {
    squares = squares + element * element;
  }
  const float next = s + squares / static_cast<float>(g.size());
  if (!std::isfinite(next)) {
    return;
  }
  s = next;
  for (std::size_t j = 0; j < g.size(); ++j) {
    const float moved = round(w[j] - (o.learning_rate * g[j]) / (std::sqrt(s) + o.epsilon), j);
    if (std::isfinite(moved)) {
      w[j] = moved;
    }
  }
}

void RmsProp(const OptimizerOptions& o, float g, float& w, float& v) {
  v = o.beta2 * v + (1.0F - o.beta2) * (g * g);
  w = w - (o.learning_rate * g) / (std::sqrt(v) + o.epsilon);
}

// Returns Adam's epsilon of step t.
float EpsilonOfStep(const OptimizerOptions& o, std::uint64_t step) {
  if (!o.corrected_epsilon) return o.epsilon;
  return static_cast<float>(double{o.epsilon} *
                            std::sqrt(1 - std::pow(double{o.beta2}, static_cast<double>(step))));
}

void Adam(const OptimizerOptions& o, std::uint64_t step, float g, float& w, float& m, float& v) {
  m = o.beta1 * m + (1.0F - o.beta1) * g;
  v = o.beta2 * v + (1.0F - o.beta2) * (g * g);
  if (o.decoupled_decay) w = static_cast<float>(1 - double{o.learning_rate} * double{o.weight_decay}) * w;
  w = w - (CorrectedRate(o, step) * m) / (std::sqrt(v) + EpsilonOfStep(o, step));
}

void Ftrl(const OptimizerOptions& o, float g, float& w, float& z, float& n) {
  const float next = n + g * g;
  const float sigma = (std::sqrt(next) - std::sqrt(n)) / o.learning_rate;
  z = z + (g - sigma * w);
  n = next;
  if (std::abs(z) <= o.lambda1) {
    w = 0.0F;
    return;
  }
  const float signed_lambda1 = z > 0.0F ? o.lambda1 : -o.lambda1;
  w = (signed_lambda1 - z) / ((o.ftrl_beta + std::sqrt(n)) / o.learning_rate + o.lambda2);
}

// Takes back what the step did to the elements that it made infinite or NaN. State vectors are as long as the
// row.
void TakeBackOverflows(const OracleRow& before, OracleRow& row) {
  const std::size_t dim = row.values.size();
  for (std::size_t j = 0; j < dim; ++j) {
    bool finite = std::isfinite(row.values[j]);
    for (std::size_t i = j; i < row.state.size(); i += dim) {
      finite = finite && std::isfinite(row.state[i]);
    }
    if (finite) {
      continue;
    }
    row.values[j] = before.values[j];
    for (std::size_t i = j; i < row.state.size(); i += dim) {
      row.state[i] = before.state[i];
    }
  }
}

}  // namespace

std::vector<float> OracleFirstState(const OptimizerOptions& optimizer, std::uint32_t dim) {
  const std::size_t n = dim;
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      return {};
    case OptimizerKind::kRowWiseAdaGrad:
      return {optimizer.initial_accumulator};
    case OptimizerKind::kAdaGrad:
      return std::vector<float>(n, optimizer.initial_accumulator);
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
    case OptimizerKind::kRmsProp:
      return std::vector<float>(n, 0.0F);
    case OptimizerKind::kAdam:
    case OptimizerKind::kFtrl:
      return std::vector<float>(2 * n, 0.0F);
  }
  return {};
}

void OracleUpdate(const OptimizerOptions& optimizer, std::uint64_t step, std::vector<float> gradient,
                  OracleRow& row, const OracleRounding& round) {
  const OptimizerOptions& o = optimizer;
  std::vector<float>& w = row.values;
  std::vector<float>& state = row.state;
  const std::size_t dim = w.size();
  const bool decoupled = o.kind == OptimizerKind::kAdam && o.decoupled_decay;
  if (o.weight_decay != 0.0F && !decoupled) {
    for (std::size_t j = 0; j < dim; ++j) {
      gradient[j] = gradient[j] + o.weight_decay * w[j];
    }
  }
  if (o.kind == OptimizerKind::kRowWiseAdaGrad) {
    return RowWiseAdaGrad(o, gradient, round, w, state[0]);
  }
  const OracleRow before = row;
  for (std::size_t j = 0; j < dim; ++j) {
    const float g = gradient[j];
    switch (o.kind) {
      case OptimizerKind::kSgd:
        w[j] = w[j] - o.learning_rate * g;
        break;
      case OptimizerKind::kMomentum:
        Momentum(o, g, w[j], state[j]);
        break;
      case OptimizerKind::kNesterov:
        Nesterov(o, g, w[j], state[j]);
        break;
      case OptimizerKind::kAdaGrad:
        AdaGrad(o, g, w[j], state[j]);
        break;
      case OptimizerKind::kRowWiseAdaGrad:
        break;  // handled above
      case OptimizerKind::kRmsProp:
        RmsProp(o, g, w[j], state[j]);
        break;
      case OptimizerKind::kAdam:
        Adam(o, step, g, w[j], state[j], state[dim + j]);
        break;
      case OptimizerKind::kFtrl:
        Ftrl(o, g, w[j], state[j], state[dim + j]);
        break;
    }
    w[j] = round(w[j], j);
  }
  TakeBackOverflows(before, row);
}

}  // namespace slotwise::test
