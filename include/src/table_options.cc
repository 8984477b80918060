#include "slotwise/table_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slotwise/status.h"
#include "slotwise/table_errors.h"

// A kind that one of these switches leaves out does not compile; checkpoints know kinds by ToString alone.
#pragma GCC diagnostic error "-Wswitch"

namespace slotwise {
namespace {

// Returns the shortest text that reads back as `value`: "0.1", "nan", "-inf".
std::string Text(float value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

Status Refuse(std::string_view field, const std::string& value, std::string_view rule) {
  std::string message(field);
  message.append(" is ").append(value).append(": ").append(rule);
  return InvalidArgument(message);
}

bool IsNameCharacter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-';
}

// Returns `name` in quotes, with every byte that is not printable ASCII as \x.., so that no message carries
// raw bytes.
std::string Quoted(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : name) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      text += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    text.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return text + "\"";
}

Status NotNegative(std::string_view field, float value) {
  if (std::isfinite(value) && value >= 0) return {};
  return Refuse(field, Text(value), "must be finite and not negative");
}

Status Above0(std::string_view field, float value) {
  if (std::isfinite(value) && value > 0) return {};
  return Refuse(field, Text(value), "must be finite and above 0");
}

Status Below1(std::string_view field, float value) {
  if (value >= 0 && value < 1) return {};
  return Refuse(field, Text(value), "must be at least 0 and below 1");
}

Status FirstBad(std::initializer_list<Status> checks) {
  for (const Status& status : checks) {
    if (!status.ok()) return status;
  }
  return {};
}

Status ValidateSchedule(const OptimizerOptions& o) {
  const ScheduleOptions& schedule = o.schedule;
  constexpr std::string_view kEnd = "optimizer.schedule.end_learning_rate";
  // Also of a rate that never falls: NaN would make a table differ from itself.
  if (Status status = FirstBad({Above0("optimizer.schedule.decay_power", schedule.decay_power),
                                NotNegative(kEnd, schedule.end_learning_rate)});
      !status.ok()) {
    return status;
  }
  if (schedule.decay_steps == 0) return {};
  if (schedule.decay_start < schedule.warmup_steps) {
    return Refuse("optimizer.schedule.decay_start", std::to_string(schedule.decay_start),
                  "must not be below warmup_steps, which is " + std::to_string(schedule.warmup_steps));
  }
  if (o.kind != OptimizerKind::kFtrl || schedule.end_learning_rate > 0) return {};
  return Refuse(kEnd, Text(schedule.end_learning_rate),
                "must be above 0 in a table of ftrl with decay_steps, because ftrl divides by the rate");
}

Status ValidateOptimizer(const OptimizerOptions& o) {
  if (Status status = FirstBad({ValidateLearningRate(o.learning_rate),
                                NotNegative("optimizer.weight_decay", o.weight_decay), ValidateSchedule(o)});
      !status.ok()) {
    return status;
  }
  // Epsilon must be above 0, because a row whose gradient is 0 divides by √0 + ε.
  const Status epsilon = Above0("optimizer.epsilon", o.epsilon);
  switch (o.kind) {
    case OptimizerKind::kSgd:
      return {};
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return Below1("optimizer.momentum", o.momentum);
    case OptimizerKind::kAdaGrad:
    case OptimizerKind::kRowWiseAdaGrad:
      return FirstBad({NotNegative("optimizer.initial_accumulator", o.initial_accumulator), epsilon});
    case OptimizerKind::kRmsProp:
      return FirstBad({Below1("optimizer.beta", o.beta2), epsilon});
    case OptimizerKind::kAdam:
      return FirstBad({Below1("optimizer.beta1", o.beta1), Below1("optimizer.beta2", o.beta2), epsilon});
    case OptimizerKind::kFtrl:
      return FirstBad({NotNegative("optimizer.lambda1", o.lambda1),
                       NotNegative("optimizer.lambda2", o.lambda2), Above0("optimizer.beta", o.ftrl_beta)});
  }
  return Refuse("optimizer.kind", std::to_string(static_cast<int>(o.kind)), "must be 0 (sgd) to 7 (ftrl)");
}

Status ValidateUniform(const InitializerOptions& initializer) {
  if (!std::isfinite(initializer.low))
    return Refuse("initializer.low", Text(initializer.low), "must be finite");
  if (!std::isfinite(initializer.high))
    return Refuse("initializer.high", Text(initializer.high), "must be finite");
  if (initializer.low > initializer.high) {
    return Refuse("initializer.low", Text(initializer.low),
                  "must not be above initializer.high, which is " + Text(initializer.high));
  }
  if (!std::isfinite(initializer.high - initializer.low)) {
    return Refuse("initializer.high", Text(initializer.high),
                  "its distance from initializer.low must be finite, and that is " + Text(initializer.low));
  }
  return {};
}

// A row's first values are rows like others, so all of them must be finite.
Status ValidateNormal(const InitializerOptions& initializer) {
  constexpr std::string_view kDeviation = "initializer.deviation";
  constexpr float kFarthest = 5.295F;  // no first value is more than 5.2947 deviations away from the mean
  if (Status status = NotNegative(kDeviation, initializer.deviation); !status.ok()) return status;
  if (std::isfinite(std::fabs(initializer.mean) + kFarthest * initializer.deviation)) return {};
  return Refuse(kDeviation, Text(initializer.deviation),
                "first values, up to " + Text(kFarthest) +
                    " deviations away from initializer.mean, must be " + "finite, and the mean is " +
                    Text(initializer.mean));
}

Status ValidateInitializer(const InitializerOptions& initializer) {
  switch (initializer.kind) {
    case InitializerKind::kUniform:
      return ValidateUniform(initializer);
    case InitializerKind::kNormal:
    case InitializerKind::kConstant:
      if (!std::isfinite(initializer.mean)) {
        const bool normal = initializer.kind == InitializerKind::kNormal;
        return Refuse(normal ? "initializer.mean" : "initializer.value", Text(initializer.mean),
                      "must be finite");
      }
      return ValidateNormal(initializer);
  }
  return Refuse("initializer.kind", std::to_string(static_cast<int>(initializer.kind)),
                "must be 0 (uniform), 1 (normal) or 2 (constant)");
}

}  // namespace

Status ValidateLearningRate(float learning_rate) { return Above0("optimizer.learning_rate", learning_rate); }

Status ValidateStepRate(float learning_rate, const TableOptions& table) {
  const OptimizerOptions& optimizer = table.optimizer;
  const bool divides = optimizer.kind == OptimizerKind::kFtrl;
  if (Status status =
          divides ? Above0("learning_rate", learning_rate) : NotNegative("learning_rate", learning_rate);
      !status.ok()) {
    return status;
  }
  if (optimizer.schedule.warmup_steps == 0 && optimizer.schedule.decay_steps == 0) return {};
  return Refuse("learning_rate", Text(learning_rate),
                "must be left out for table " + table.name.str() + ", whose schedule decides it");
}

Status ValidateTableName(std::string_view name) {
  constexpr std::string_view kRule =
      "must be 1 to 255 of A-Z a-z 0-9 _ . - / and no part between / be empty or start with '.' or '-'";
  bool legal = name.size() <= TableName::kMaxLength;
  for (std::size_t begin = 0; legal && begin <= name.size();) {
    const std::string_view part = name.substr(begin, name.find('/', begin) - begin);
    legal = !part.empty() && part.front() != '.' && part.front() != '-' &&
            std::all_of(part.begin(), part.end(), IsNameCharacter);
    begin += part.size() + 1;
  }
  if (legal) return {};
  // TableName cut a name that was too long, so the message says "...".
  return Refuse("name", Quoted(name) + (name.size() > TableName::kMaxLength ? "..." : ""), kRule);
}

TableName::TableName(std::string_view name) {
  length_ = static_cast<std::uint16_t>(std::min(name.size(), text_.size()));
  std::copy_n(name.begin(), length_, text_.begin());
}

std::vector<Status> ErrorsIn(const TableOptions& options) {
  std::vector<Status> errors;
  const auto add = [&errors](Status status) {
    if (!status.ok()) errors.push_back(std::move(status));
  };
  const auto check_range = [&add](std::string_view field, std::uint64_t value, std::uint64_t most) {
    if (value < 1 || value > most)
      add(Refuse(field, std::to_string(value), "must be 1 to " + std::to_string(most)));
  };
  add(ValidateTableName(options.name.view()));
  check_range("dim", options.dim, TableOptions::kMaxDim);
  check_range("slots", options.slots, TableOptions::kMaxSlots);
  if (options.combiner > Combiner::kNone) {
    add(Refuse("combiner", std::to_string(static_cast<int>(options.combiner)),
               "must be 0 (sum), 1 (mean), 2 (sqrtn) or 3 (none)"));
  }
  if (options.combiner == Combiner::kNone && options.slots > 1) {
    add(Refuse("slots", std::to_string(options.slots), "must be 1 in a table without a combiner"));
  }
  add(ValidateOptimizer(options.optimizer));
  add(ValidateInitializer(options.initializer));
  check_range("max_rows", options.max_rows, TableOptions::kMaxMaxRows);
  if (options.initial_rows > options.max_rows) {
    add(Refuse("initial_rows", std::to_string(options.initial_rows),
               "must not be above max_rows, which is " + std::to_string(options.max_rows)));
  }
  const bool may_load =
      options.max_load >= TableOptions::kLeastMaxLoad && options.max_load <= TableOptions::kMostMaxLoad;
  if (!may_load) add(Refuse("max_load", Text(options.max_load), "must be 0.0625 to 0.9375"));  // nor NaN
  return errors;
}

Status Validate(const TableOptions& options) {
  const std::vector<Status> errors = ErrorsIn(options);
  return errors.empty() ? Status() : errors.front();
}

std::string FirstDifference(const TableOptions& there, const TableOptions& asked) {
  std::string difference;
  const auto compare = [&](std::string_view option, auto is, auto wanted) {
    if (is == wanted || !difference.empty()) return;
    const auto text = [](auto value) {
      if constexpr (std::is_floating_point_v<decltype(value)>) {
        return Text(value);
      } else if constexpr (std::is_same_v<decltype(value), bool>) {
        return std::string(value ? "true" : "false");
      } else if constexpr (std::is_integral_v<decltype(value)>) {
        return std::to_string(value);
      } else {
        return std::string(ToString(value));
      }
    };
    difference = std::string(option) + " is " + text(is) + ", not " + text(wanted);
  };
  compare("dim", there.dim, asked.dim);
  compare("slots", there.slots, asked.slots);
  compare("combiner", there.combiner, asked.combiner);
  const OptimizerOptions& is = there.optimizer;
  const OptimizerOptions& o = asked.optimizer;
  compare("optimizer", is.kind, o.kind);
  compare("optimizer.learning_rate", is.learning_rate, o.learning_rate);
  compare("optimizer.weight_decay", is.weight_decay, o.weight_decay);
  compare("optimizer.epsilon", is.epsilon, o.epsilon);
  compare("optimizer.initial_accumulator", is.initial_accumulator, o.initial_accumulator);
  compare("optimizer.momentum", is.momentum, o.momentum);
  compare("optimizer.beta1", is.beta1, o.beta1);
  compare(o.kind == OptimizerKind::kRmsProp ? "optimizer.beta" : "optimizer.beta2", is.beta2, o.beta2);
  compare("optimizer.corrected_epsilon", is.corrected_epsilon, o.corrected_epsilon);
  compare("optimizer.decoupled_decay", is.decoupled_decay, o.decoupled_decay);
  compare("optimizer.beta", is.ftrl_beta, o.ftrl_beta);
  compare("optimizer.lambda1", is.lambda1, o.lambda1);
  compare("optimizer.lambda2", is.lambda2, o.lambda2);
  const ScheduleOptions& schedule = is.schedule;
  compare("optimizer.schedule.warmup_steps", schedule.warmup_steps, o.schedule.warmup_steps);
  compare("optimizer.schedule.decay_start", schedule.decay_start, o.schedule.decay_start);
  compare("optimizer.schedule.decay_steps", schedule.decay_steps, o.schedule.decay_steps);
  compare("optimizer.schedule.decay_power", schedule.decay_power, o.schedule.decay_power);
  compare("optimizer.schedule.end_learning_rate", schedule.end_learning_rate, o.schedule.end_learning_rate);
  const InitializerOptions& first = there.initializer;
  compare("initializer", first.kind, asked.initializer.kind);
  compare("initializer.seed", first.seed, asked.initializer.seed);
  compare("initializer.low", first.low, asked.initializer.low);
  compare("initializer.high", first.high, asked.initializer.high);
  const bool normal = first.kind == InitializerKind::kNormal;
  compare(normal ? "initializer.mean" : "initializer.value", first.mean, asked.initializer.mean);
  compare("initializer.deviation", first.deviation, asked.initializer.deviation);
  compare("initial_rows", there.initial_rows, asked.initial_rows);
  compare("max_rows", there.max_rows, asked.max_rows);
  compare("max_load", there.max_load, asked.max_load);
  return difference;
}

std::string_view ToString(InitializerKind kind) {
  switch (kind) {
    case InitializerKind::kUniform:
      return "uniform";
    case InitializerKind::kNormal:
      return "normal";
    case InitializerKind::kConstant:
      return "constant";
  }
  return "unknown";
}

std::string_view ToString(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum:
      return "sum";
    case Combiner::kMean:
      return "mean";
    case Combiner::kSqrtn:
      return "sqrtn";
    case Combiner::kNone:
      return "none";
  }
  return "unknown";
}

std::string_view ToString(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdaGrad:
      return "adagrad";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kMomentum:
      return "momentum";
    case OptimizerKind::kNesterov:
      return "nesterov";
    case OptimizerKind::kRowWiseAdaGrad:
      return "rowwise_adagrad";
    case OptimizerKind::kRmsProp:
      return "rmsprop";
    case OptimizerKind::kFtrl:
      return "ftrl";
  }
  return "unknown";
}

}  // namespace slotwise
