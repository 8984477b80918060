#include "wire/table_options_proto.h"

#include <string>
#include <utility>
#include <vector>

#include "slotwise/table_errors.h"

namespace slotwise {
namespace {

Result<Combiner> FromProto(v1::Combiner combiner) {
  switch (combiner) {
    case v1::COMBINER_UNSPECIFIED:
    case v1::COMBINER_SUM:
      return Combiner::kSum;
    case v1::COMBINER_MEAN:
      return Combiner::kMean;
    case v1::COMBINER_SQRTN:
      return Combiner::kSqrtn;
    case v1::COMBINER_NONE:
      return Combiner::kNone;
    default:
      return InvalidArgument("combiner is " + std::to_string(combiner) +
                             ": must be 1 (sum), 2 (mean), 3 (sqrtn) or 4 (none)");
  }
}

v1::Combiner ToProto(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum:
      return v1::COMBINER_SUM;
    case Combiner::kMean:
      return v1::COMBINER_MEAN;
    case Combiner::kSqrtn:
      return v1::COMBINER_SQRTN;
    case Combiner::kNone:
      return v1::COMBINER_NONE;
  }
  return v1::COMBINER_UNSPECIFIED;
}

template <class Wire>
void ReadAccumulator(const Wire& wire, OptimizerOptions& options) {
  options.epsilon = wire.has_epsilon() ? wire.epsilon() : 1e-10F;
  options.initial_accumulator = wire.initial_accumulator();  // an absent field is 0, and so is the default
}

ScheduleOptions FromProto(const v1::Schedule& wire) {
  ScheduleOptions options;
  options.warmup_steps = wire.warmup_steps();
  options.decay_start = wire.decay_start();
  options.decay_steps = wire.decay_steps();
  if (wire.has_decay_power()) options.decay_power = wire.decay_power();
  options.end_learning_rate = wire.end_learning_rate();
  return options;
}

// Writes no schedule if the schedule has only defaults.
void Write(const ScheduleOptions& options, v1::Optimizer& wire) {
  if (options == ScheduleOptions{}) return;
  v1::Schedule& schedule = *wire.mutable_schedule();
  schedule.set_warmup_steps(options.warmup_steps);
  schedule.set_decay_start(options.decay_start);
  schedule.set_decay_steps(options.decay_steps);
  schedule.set_decay_power(options.decay_power);
  schedule.set_end_learning_rate(options.end_learning_rate);
}

// Leaves the constants of other kinds at their defaults, so that equal tables have equal options.
OptimizerOptions FromProto(const v1::Optimizer& wire) {
  OptimizerOptions options;
  options.learning_rate = wire.learning_rate();
  options.weight_decay = wire.weight_decay();
  options.schedule = FromProto(wire.schedule());
  switch (wire.kind_case()) {
    case v1::Optimizer::KIND_NOT_SET:
    case v1::Optimizer::kSgd:
      options.kind = OptimizerKind::kSgd;
      break;
    case v1::Optimizer::kAdagrad:
      options.kind = OptimizerKind::kAdaGrad;
      ReadAccumulator(wire.adagrad(), options);
      break;
    case v1::Optimizer::kAdam:
      options.kind = OptimizerKind::kAdam;
      options.beta1 = wire.adam().has_beta1() ? wire.adam().beta1() : 0.9F;
      options.beta2 = wire.adam().has_beta2() ? wire.adam().beta2() : 0.999F;
      options.epsilon = wire.adam().has_epsilon() ? wire.adam().epsilon() : 1e-8F;
      options.corrected_epsilon = wire.adam().corrected_epsilon();
      options.decoupled_decay = wire.adam().decoupled_decay();
      break;
    case v1::Optimizer::kMomentum:
      options.kind = OptimizerKind::kMomentum;
      options.momentum = wire.momentum().has_momentum() ? wire.momentum().momentum() : 0.9F;
      break;
    case v1::Optimizer::kNesterov:
      options.kind = OptimizerKind::kNesterov;
      options.momentum = wire.nesterov().has_momentum() ? wire.nesterov().momentum() : 0.9F;
      break;
    case v1::Optimizer::kRowwiseAdagrad:
      options.kind = OptimizerKind::kRowWiseAdaGrad;
      ReadAccumulator(wire.rowwise_adagrad(), options);
      break;
    case v1::Optimizer::kRmsprop:
      options.kind = OptimizerKind::kRmsProp;
      options.beta2 = wire.rmsprop().has_beta() ? wire.rmsprop().beta() : 0.99F;
      options.epsilon = wire.rmsprop().has_epsilon() ? wire.rmsprop().epsilon() : 1e-8F;
      break;
    case v1::Optimizer::kFtrl:
      options.kind = OptimizerKind::kFtrl;
      options.lambda1 = wire.ftrl().lambda1();
      options.lambda2 = wire.ftrl().lambda2();
      options.ftrl_beta = wire.ftrl().has_beta() ? wire.ftrl().beta() : 1.0F;
      break;
  }
  return options;
}

InitializerOptions FromProto(const v1::Initializer& wire) {
  InitializerOptions options;
  options.seed = wire.seed();
  switch (wire.kind_case()) {
    case v1::Initializer::KIND_NOT_SET:
      break;
    case v1::Initializer::kUniform:
      options.low = wire.uniform().low();
      options.high = wire.uniform().high();
      break;
    case v1::Initializer::kNormal:
      options.kind = InitializerKind::kNormal;
      options.mean = wire.normal().mean();
      options.deviation = wire.normal().deviation();
      break;
    case v1::Initializer::kConstant:
      options.kind = InitializerKind::kConstant;
      options.mean = wire.constant().value();
      break;
  }
  return options;
}

void Write(const OptimizerOptions& options, v1::Optimizer& wire) {
  wire.set_learning_rate(options.learning_rate);
  wire.set_weight_decay(options.weight_decay);
  Write(options.schedule, wire);
  switch (options.kind) {
    case OptimizerKind::kSgd:
      wire.mutable_sgd();
      break;
    case OptimizerKind::kAdaGrad:
      wire.mutable_adagrad()->set_epsilon(options.epsilon);
      wire.mutable_adagrad()->set_initial_accumulator(options.initial_accumulator);
      break;
    case OptimizerKind::kAdam:
      wire.mutable_adam()->set_beta1(options.beta1);
      wire.mutable_adam()->set_beta2(options.beta2);
      wire.mutable_adam()->set_epsilon(options.epsilon);
      wire.mutable_adam()->set_corrected_epsilon(options.corrected_epsilon);
      wire.mutable_adam()->set_decoupled_decay(options.decoupled_decay);
      break;
    case OptimizerKind::kMomentum:
      wire.mutable_momentum()->set_momentum(options.momentum);
      break;
    case OptimizerKind::kNesterov:
      wire.mutable_nesterov()->set_momentum(options.momentum);
      break;
    case OptimizerKind::kRowWiseAdaGrad:
      wire.mutable_rowwise_adagrad()->set_epsilon(options.epsilon);
      wire.mutable_rowwise_adagrad()->set_initial_accumulator(options.initial_accumulator);
      break;
    case OptimizerKind::kRmsProp:
      wire.mutable_rmsprop()->set_beta(options.beta2);
      wire.mutable_rmsprop()->set_epsilon(options.epsilon);
      break;
    case OptimizerKind::kFtrl:
      wire.mutable_ftrl()->set_lambda1(options.lambda1);
      wire.mutable_ftrl()->set_lambda2(options.lambda2);
      wire.mutable_ftrl()->set_beta(options.ftrl_beta);
      break;
  }
}

void Write(const InitializerOptions& options, v1::Initializer& wire) {
  wire.set_seed(options.seed);
  switch (options.kind) {
    case InitializerKind::kUniform:
      wire.mutable_uniform()->set_low(options.low);
      wire.mutable_uniform()->set_high(options.high);
      break;
    case InitializerKind::kNormal:
      wire.mutable_normal()->set_mean(options.mean);
      wire.mutable_normal()->set_deviation(options.deviation);
      break;
    case InitializerKind::kConstant:
      wire.mutable_constant()->set_value(options.mean);
      break;
  }
}

}  // namespace

TableOptions FromProto(const v1::TableOptions& wire, std::vector<Status>& errors) {
  TableOptions options;
  options.name = TableName(wire.name());
  options.dim = wire.dim();
  options.slots = wire.slots() == 0 ? 1 : wire.slots();
  if (const auto combiner = FromProto(wire.combiner()); combiner.ok()) {
    options.combiner = *combiner;
  } else {
    errors.push_back(combiner.status());
  }
  options.optimizer = FromProto(wire.optimizer());
  options.initializer = FromProto(wire.initializer());
  options.initial_rows = wire.initial_rows();
  if (wire.max_rows() != 0) options.max_rows = wire.max_rows();
  if (wire.max_load() != 0) options.max_load = wire.max_load();
  for (Status& error : ErrorsIn(options)) errors.push_back(std::move(error));
  return options;
}

Result<TableOptions> FromProto(const v1::TableOptions& wire) {
  std::vector<Status> errors;
  const TableOptions options = FromProto(wire, errors);
  if (!errors.empty()) return errors.front();
  return options;
}

v1::TableOptions ToProto(const TableOptions& options) {
  v1::TableOptions wire;
  wire.set_name(options.name.str());
  wire.set_dim(options.dim);
  wire.set_slots(options.slots);
  wire.set_combiner(ToProto(options.combiner));
  Write(options.optimizer, *wire.mutable_optimizer());
  Write(options.initializer, *wire.mutable_initializer());
  wire.set_initial_rows(options.initial_rows);
  wire.set_max_rows(options.max_rows);
  wire.set_max_load(options.max_load);
  return wire;
}

}  // namespace slotwise
