#include "server/durability/table_options_json.h"

#include <array>
#include <limits>
#include <string>
#include <type_traits>

namespace slotwise {
namespace {

// The one list of all options, for writing and reading them. `visit(name, field)`; the seed is written in
// hexadecimal digits. An option that is false is left out, as earlier versions left it.
template <class Options, class Visit>
void EachOption(Options& options, const Visit& visit) {
  auto& optimizer = options.optimizer;
  auto& schedule = optimizer.schedule;
  auto& initializer = options.initializer;
  visit("name", options.name);
  visit("dim", options.dim);
  visit("slots", options.slots);
  visit("combiner", options.combiner);
  visit("optimizer", optimizer.kind);
  visit("learning_rate", optimizer.learning_rate);
  visit("warmup_steps", schedule.warmup_steps);
  visit("decay_start", schedule.decay_start);
  visit("decay_steps", schedule.decay_steps);
  visit("decay_power", schedule.decay_power);
  visit("end_learning_rate", schedule.end_learning_rate);
  visit("weight_decay", optimizer.weight_decay);
  visit("epsilon", optimizer.epsilon);
  visit("initial_accumulator", optimizer.initial_accumulator);
  visit("momentum", optimizer.momentum);
  visit("beta1", optimizer.beta1);
  visit("beta2", optimizer.beta2);
  visit("corrected_epsilon", optimizer.corrected_epsilon);
  visit("decoupled_decay", optimizer.decoupled_decay);
  visit("ftrl_beta", optimizer.ftrl_beta);
  visit("lambda1", optimizer.lambda1);
  visit("lambda2", optimizer.lambda2);
  visit("initializer", initializer.kind);
  visit("low", initializer.low);
  visit("high", initializer.high);
  visit("seed", initializer.seed);
  visit("mean", initializer.mean);
  visit("deviation", initializer.deviation);
  visit("initial_rows", options.initial_rows);
  visit("max_rows", options.max_rows);
  visit("max_load", options.max_load);
}

static_assert(sizeof(ScheduleOptions) == 32 && sizeof(OptimizerOptions) == 80 &&
                  sizeof(InitializerOptions) == 32 && sizeof(TableOptions) == 408,
              "EachOption must name every option");

// The kinds in the order of their numbers.
template <class Kind>
constexpr auto kKindsOf = std::array<Kind, 0>();
template <>
constexpr auto kKindsOf<Combiner> =
    std::array{Combiner::kSum, Combiner::kMean, Combiner::kSqrtn, Combiner::kNone};
template <>
constexpr auto kKindsOf<OptimizerKind> =
    std::array{OptimizerKind::kSgd,      OptimizerKind::kAdaGrad,  OptimizerKind::kAdam,
               OptimizerKind::kMomentum, OptimizerKind::kNesterov, OptimizerKind::kRowWiseAdaGrad,
               OptimizerKind::kRmsProp,  OptimizerKind::kFtrl};
template <>
constexpr auto kKindsOf<InitializerKind> =
    std::array{InitializerKind::kUniform, InitializerKind::kNormal, InitializerKind::kConstant};

template <class Kind>
void ReadKind(Fields& fields, const std::string& name, Kind& kind) {
  const std::string text = fields.Text(name);
  for (const Kind known : kKindsOf<Kind>) {
    if (ToString(known) != text) continue;
    kind = known;
    return;
  }
  fields.Complain(name, "is '" + text + "', which this version does not know");
}

}  // namespace

nlohmann::ordered_json ToJson(const TableOptions& options) {
  nlohmann::ordered_json object;
  EachOption(options, [&](const std::string& name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, TableName>) {
      object[name] = field.str();
    } else if constexpr (std::is_enum_v<Field>) {
      object[name] = std::string(ToString(field));
    } else if constexpr (std::is_same_v<Field, float>) {
      object[name] = double{field};
    } else if constexpr (std::is_same_v<Field, bool>) {
      if (field) object[name] = true;
    } else if (name == "seed") {
      object[name] = Hex(field);
    } else {
      object[name] = field;
    }
  });
  return object;
}

TableOptions ParseTableOptions(Fields fields) {
  TableOptions options;
  EachOption(options, [&](const std::string& name, auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, TableName>) {
      field = TableName(fields.Text(name));
    } else if constexpr (std::is_enum_v<Field>) {
      ReadKind(fields, name, field);
    } else if constexpr (std::is_same_v<Field, float>) {
      field = fields.Float(name);
    } else if constexpr (std::is_same_v<Field, bool>) {
      field = fields.Has(name) && fields.Flag(name);
    } else if (name == "seed") {
      field = static_cast<Field>(fields.HexNumber(name));
    } else {
      field = static_cast<Field>(fields.Number(name, 0, std::numeric_limits<Field>::max()));
    }
  });
  fields.RefuseOthers();
  if (const Status status = Validate(options); !status.ok())
    fields.Complain("", "cannot make a table: " + status.message());
  return options;
}

}  // namespace slotwise
