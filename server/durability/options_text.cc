#include "server/durability/options_text.h"

#include "server/durability/checked_fields.h"
#include "slotwise/v1/manifest.pb.h"
#include "wire/json.h"

namespace slotwise {

void ListFlatOptions(CheckedFields& fields, TableOptions& options) {
  OptimizerOptions& optimizer = options.optimizer;
  ScheduleOptions& schedule = optimizer.schedule;
  InitializerOptions& initializer = options.initializer;
  std::string name = options.name.str();
  fields.Text("name", name);
  options.name = TableName(name);
  fields.Number("dim", options.dim);
  fields.Number("slots", options.slots);
  fields.Kind("combiner", options.combiner);
  fields.Kind("optimizer", optimizer.kind);
  fields.Float("learning_rate", optimizer.learning_rate);
  fields.Number("warmup_steps", schedule.warmup_steps);
  fields.Number("decay_start", schedule.decay_start);
  fields.Number("decay_steps", schedule.decay_steps);
  fields.Float("decay_power", schedule.decay_power);
  fields.Float("end_learning_rate", schedule.end_learning_rate);
  fields.Float("weight_decay", optimizer.weight_decay);
  fields.Float("epsilon", optimizer.epsilon);
  fields.Float("initial_accumulator", optimizer.initial_accumulator);
  fields.Float("momentum", optimizer.momentum);
  fields.Float("beta1", optimizer.beta1);
  fields.Float("beta2", optimizer.beta2);
  fields.Flag("corrected_epsilon", optimizer.corrected_epsilon);
  fields.Flag("decoupled_decay", optimizer.decoupled_decay);
  fields.Float("ftrl_beta", optimizer.ftrl_beta);
  fields.Float("lambda1", optimizer.lambda1);
  fields.Float("lambda2", optimizer.lambda2);
  fields.Kind("initializer", initializer.kind);
  fields.Float("low", initializer.low);
  fields.Float("high", initializer.high);
  fields.HexNumber("seed", initializer.seed);
  fields.Float("mean", initializer.mean);
  fields.Float("deviation", initializer.deviation);
  fields.Number("initial_rows", options.initial_rows);
  fields.Number("max_rows", options.max_rows);
  fields.Float("max_load", options.max_load);
  if (const Status status = Validate(options); !status.ok())
    fields.Complain("", "cannot make a table: " + status.message());
}

std::string OptionsText(const TableOptions& options) { return ToJson(options); }

Result<TableOptions> OptionsFromText(std::string_view text) {
  Result<TableOptions> options = TableOptionsFromJson(text);
  if (!options.ok()) return DataLoss(options.status().message());
  return options;
}

Result<TableOptions> FlatOptionsFromText(std::string_view text) {
  v1::FlatTableOptions message;
  if (const Status status = ParseMessage(text, "options", message); !status.ok())
    return DataLoss(status.message());
  TableOptions options;
  const std::string error = CheckedFields::Read(message, "options", options, ListFlatOptions);
  if (!error.empty()) return DataLoss(error);
  return options;
}

}  // namespace slotwise
