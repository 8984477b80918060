#include "server/rpc/table_options_proto.h"

#include <string>

namespace slotwise {
namespace {

Result<Combiner> FromProto(v1::Combiner combiner) {
  switch (combiner) {
    case v1::COMBINER_UNSPECIFIED:
    case v1::COMBINER_SUM:
      return Combiner::kSum;
    case v1::COMBINER_MEAN:
      return Combiner::kMean;
    default:
      return InvalidArgument("combiner is " + std::to_string(combiner) + ": must be 1 (sum) or 2 (mean)");
  }
}

// The constants that another kind would use are left at their defaults, so that equal tables have equal options.
OptimizerOptions FromProto(const v1::Optimizer& wire) {
  OptimizerOptions options;
  options.learning_rate = wire.learning_rate();
  switch (wire.kind_case()) {
    case v1::Optimizer::KIND_NOT_SET:
    case v1::Optimizer::kSgd:
      options.kind = OptimizerKind::kSgd;
      break;
    case v1::Optimizer::kAdagrad:
      options.kind = OptimizerKind::kAdaGrad;
      options.epsilon = wire.adagrad().has_epsilon() ? wire.adagrad().epsilon() : 1e-10F;
      options.initial_accumulator =
          wire.adagrad().initial_accumulator();  // absent is 0, and so is the default
      break;
    case v1::Optimizer::kAdam:
      options.kind = OptimizerKind::kAdam;
      options.beta1 = wire.adam().has_beta1() ? wire.adam().beta1() : 0.9F;
      options.beta2 = wire.adam().has_beta2() ? wire.adam().beta2() : 0.999F;
      options.epsilon = wire.adam().has_epsilon() ? wire.adam().epsilon() : 1e-8F;
      break;
  }
  return options;
}

InitializerOptions FromProto(const v1::Initializer& wire) {
  InitializerOptions options;
  options.seed = wire.seed();
  if (wire.has_uniform()) {
    options.low = wire.uniform().low();
    options.high = wire.uniform().high();
  }
  return options;
}

void Write(const OptimizerOptions& options, v1::Optimizer& wire) {
  wire.set_learning_rate(options.learning_rate);
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
      break;
  }
}

}  // namespace

Result<TableOptions> FromProto(const v1::TableOptions& wire) {
  const auto combiner = FromProto(wire.combiner());
  if (!combiner.ok()) return combiner.status();

  TableOptions options;
  options.name = TableName(wire.name());
  options.dim = wire.dim();
  options.slots = wire.slots() == 0 ? 1 : wire.slots();
  options.combiner = *combiner;
  options.optimizer = FromProto(wire.optimizer());
  options.initializer = FromProto(wire.initializer());
  options.initial_rows = wire.initial_rows();
  if (wire.max_rows() != 0) options.max_rows = wire.max_rows();
  if (Status status = Validate(options); !status.ok()) return status;
  return options;
}

v1::TableOptions ToProto(const TableOptions& options) {
  v1::TableOptions wire;
  wire.set_name(options.name.str());
  wire.set_dim(options.dim);
  wire.set_slots(options.slots);
  wire.set_combiner(options.combiner == Combiner::kSum ? v1::COMBINER_SUM : v1::COMBINER_MEAN);
  Write(options.optimizer, *wire.mutable_optimizer());
  wire.mutable_initializer()->set_seed(options.initializer.seed);
  wire.mutable_initializer()->mutable_uniform()->set_low(options.initializer.low);
  wire.mutable_initializer()->mutable_uniform()->set_high(options.initializer.high);
  wire.set_initial_rows(options.initial_rows);
  wire.set_max_rows(options.max_rows);
  return wire;
}

}  // namespace slotwise
