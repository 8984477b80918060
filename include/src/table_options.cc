#include "slotwise/table_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slotwise/status.h"
#include "slotwise/table_errors.h"

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

// Returns a value's text in errors.
template <class T>
std::string Said(const T& value) {
  if constexpr (std::is_same_v<T, float>) {
    return Text(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    return std::string(ToString(value));
  }
}

template <class T>
Status CheckRange(std::string_view path, const Option<T>& option, const T& value) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, std::uint32_t> ||
                std::is_same_v<T, std::uint64_t>) {
    const Range& range = option.range;
    if (range.Has(static_cast<double>(value))) return {};
    const auto bound = [](double of) { return Said(static_cast<T>(of)); };
    const std::string rule = range.rule.empty() ? "must be " + bound(range.least) + " to " + bound(range.most)
                                                : std::string(range.rule);
    return Refuse(std::string(path) + std::string(option.name), Said(value), rule);
  } else {
    return {};
  }
}

// Returns a visitor of options that notes the first one that has no value that it may have.
auto NoteFirst(std::string_view path, Status& first) {
  return [path, &first]<class T>(const Option<T>& option, const T& value) {
    if (first.ok()) first = CheckRange(path, option, value);
  };
}

template <class Kind>
Status NoKind(std::string_view field, Kind kind) {
  std::string rule = "must be ";
  const std::vector<Kind> kinds = EveryKind<Kind>();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i > 0) rule += i + 1 < kinds.size() ? ", " : " or ";
    rule += std::to_string(i) + " (" + std::string(ToString(kinds[i])) + ")";
  }
  return Refuse(field, std::to_string(static_cast<int>(kind)), rule);
}

// No initial value of a normal initializer is more than 5.2947 deviations away from the mean.
constexpr float kFarthest = 5.295F;

// The texts of options, by their paths in messages, the kinds before their constants.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

// Returns a visitor of options that adds their texts.
auto AddTo(OptionTexts& texts, std::string_view path) {
  return [&texts, path]<class T>(const Option<T>& option, const T& value) {
    texts.emplace_back(std::string(path) + std::string(option.name), Said(value));
  };
}

void AddTexts(const OptimizerOptions& options, OptionTexts& texts) {
  texts.emplace_back("optimizer", ToString(options.kind));
  ForEachOption(options, AddTo(texts, "optimizer."));
  ForEachOption(options.schedule, AddTo(texts, "optimizer.schedule."));
  ForEachConstant(options, AddTo(texts, "optimizer."));
}

void AddTexts(const InitializerOptions& options, OptionTexts& texts) {
  texts.emplace_back("initializer", ToString(options.kind));
  ForEachOption(options, AddTo(texts, "initializer."));
  ForEachConstant(options, AddTo(texts, "initializer."));
}

void AddTexts(const EvictionOptions& options, OptionTexts& texts) {
  if (options.score != ScoreKind::kNone) return ForEachOption(options, AddTo(texts, "eviction."));
  texts.emplace_back("eviction.score", ToString(options.score));
}

void AddTexts(const AdmissionOptions& options, OptionTexts& texts) {
  texts.emplace_back("admission", ToString(options.kind));
  if (options.kind == AdmissionKind::kNone) return;
  ForEachConstant(options, AddTo(texts, "admission."));
  ForEachOption(options, AddTo(texts, "admission."));
}

OptionTexts TextsOf(const TableOptions& options) {
  OptionTexts texts;
  ForEachOption(options, AddTo(texts, ""));
  AddTexts(options.eviction, texts);
  AddTexts(options.admission, texts);
  AddTexts(options.optimizer, texts);
  AddTexts(options.initializer, texts);
  return texts;
}

template <class Options>
bool SayTheSame(const Options& one, const Options& other) {
  OptionTexts of_one, of_other;
  AddTexts(one, of_one);
  AddTexts(other, of_other);
  return of_one == of_other;
}

Status ValidateOptimizer(const OptimizerOptions& o) {
  const ScheduleOptions& schedule = o.schedule;
  Status first;
  ForEachOption(o, NoteFirst("optimizer.", first));
  // Checks also the options of a rate that never falls: NaN would make a table differ from itself.
  ForEachOption(schedule, NoteFirst("optimizer.schedule.", first));
  if (!first.ok()) return first;
  if (schedule.decay_steps > 0 && schedule.decay_start < schedule.warmup_steps) {
    return Refuse("optimizer.schedule.decay_start", std::to_string(schedule.decay_start),
                  "must not be below warmup_steps, which is " + std::to_string(schedule.warmup_steps));
  }
  if (schedule.decay_steps > 0 && o.kind == OptimizerKind::kFtrl && !(schedule.end_learning_rate > 0)) {
    return Refuse("optimizer.schedule.end_learning_rate", Text(schedule.end_learning_rate),
                  "must be above 0 in a table of ftrl with decay_steps, because ftrl divides by the rate");
  }
  if (ToString(o.kind) == kUnknown) return NoKind<OptimizerKind>("optimizer.kind", o.kind);
  ForEachConstant(o, NoteFirst("optimizer.", first));
  return first;
}

Status ValidateEviction(const TableOptions& options) {
  const EvictionOptions& eviction = options.eviction;
  if (ToString(eviction.score) == kUnknown) return NoKind<ScoreKind>("eviction.score", eviction.score);
  Status first;
  ForEachOption(eviction, NoteFirst("eviction.", first));
  if (!first.ok()) return first;
  if (!(eviction.to < eviction.at)) {
    return Refuse("eviction.to", Text(eviction.to),
                  "must be below eviction.at, which is " + Text(eviction.at));
  }
  if (eviction.half_life_steps > 0 && !CountsOccurrences(eviction.score)) {
    return Refuse("eviction.half_life_steps", std::to_string(eviction.half_life_steps),
                  "must be 0, because a score by " + std::string(ToString(eviction.score)) +
                      " counts no occurrences; lfu and step_lfu do");
  }
  if (RowsOfShare(options.max_rows, eviction.at) > 0) return {};
  return Refuse("eviction.at", Text(eviction.at),
                "must leave room for a row, and max_rows is " + std::to_string(options.max_rows));
}

// Checks the options that one of the counters has and the other one has not.
Status ValidateCounter(const AdmissionOptions& admission) {
  if (ToString(admission.counter) == kUnknown)
    return NoKind<CounterKind>("admission.counter", admission.counter);
  if (admission.counter == CounterKind::kExact) {
    if (admission.counter_mib == 0) return {};
    return Refuse(
        "admission.counter_mib", std::to_string(admission.counter_mib),
        "must be 0, because the counter is exact, and max_keys is its bound; bloom has counter_mib");
  }
  if (admission.threshold > BloomCounter::kMaxThreshold) {
    return Refuse("admission.threshold", std::to_string(admission.threshold),
                  "must be at most " + std::to_string(BloomCounter::kMaxThreshold) +
                      ", because the counter is bloom, whose counts have 8 bits");
  }
  if (admission.max_keys > 0) {
    return Refuse("admission.max_keys", std::to_string(admission.max_keys),
                  "must be 0, because the counter is bloom, whose bound is counter_mib");
  }
  if (admission.counter_mib > 0) return {};
  return Refuse("admission.counter_mib", "0",
                "must be 1 to " + std::to_string(BloomCounter::kMaxMib) + ", because the counter is bloom");
}

Status ValidateAdmission(const TableOptions& options) {
  const AdmissionOptions& admission = options.admission;
  if (ToString(admission.kind) == kUnknown) return NoKind<AdmissionKind>("admission.kind", admission.kind);
  if (ToString(admission.absent) == kUnknown) return NoKind<AbsentRows>("admission.absent", admission.absent);
  Status first;
  ForEachConstant(admission, NoteFirst("admission.", first));
  if (!first.ok() || !options.has_candidates()) return first;
  if (Status counter = ValidateCounter(admission); !counter.ok()) return counter;
  constexpr std::size_t kMost = TableName::kMaxLength - kCandidatesSuffix.size();
  if (options.name.view().size() <= kMost) return {};
  return Refuse("name", Quoted(options.name.view()),
                "must have at most " + std::to_string(kMost) +
                    " characters in a table whose admission counts, because the counts have a name too");
}

// Returns a refusal of a table of 16-bit rows whose initial values may be too large for these.
Status ValidateRowType(const TableOptions& options) {
  const DataType type = options.row_dtype;
  if (ToString(type) == kUnknown) return NoKind<DataType>("row_dtype", type);
  if (ToString(options.rounding) == kUnknown) return NoKind<Rounding>("rounding", options.rounding);
  if (type == DataType::kFloat32) {
    if (options.rounding == Rounding::kStochastic) return {};
    return Refuse("rounding", std::string(ToString(options.rounding)),
                  "must be left out in a table whose row_dtype is float32, because it rounds nothing");
  }
  const InitializerOptions& o = options.initializer;
  const auto refuse = [type](std::string_view field, float value) {
    return Refuse(field, Text(value),
                  "initial values must be at most " + Text(LargestOf(type)) + ", because row_dtype is " +
                      std::string(ToString(type)));
  };
  const auto fits = [type](float value) { return std::isfinite(RoundedTo(type, value)); };
  switch (o.kind) {
    case InitializerKind::kUniform:
      if (!fits(o.low)) return refuse("initializer.low", o.low);
      return fits(o.high) ? Status() : refuse("initializer.high", o.high);
    case InitializerKind::kNormal:
      if (!fits(o.mean)) return refuse("initializer.mean", o.mean);
      return fits(std::fabs(o.mean) + kFarthest * o.deviation) ? Status()
                                                               : refuse("initializer.deviation", o.deviation);
    case InitializerKind::kConstant:
      return fits(o.mean) ? Status() : refuse("initializer.value", o.mean);
  }
  return {};
}

// A row's initial values are rows like others, so all of them must be finite.
Status ValidateInitializer(const InitializerOptions& o) {
  if (ToString(o.kind) == kUnknown) return NoKind<InitializerKind>("initializer.kind", o.kind);
  Status first;
  ForEachConstant(o, NoteFirst("initializer.", first));
  if (!first.ok()) return first;
  if (o.kind == InitializerKind::kUniform) {
    if (o.low > o.high) {
      return Refuse("initializer.low", Text(o.low),
                    "must not be above initializer.high, which is " + Text(o.high));
    }
    if (!std::isfinite(o.high - o.low)) {
      return Refuse("initializer.high", Text(o.high),
                    "its distance from initializer.low must be finite, and that is " + Text(o.low));
    }
  }
  if (o.kind == InitializerKind::kNormal && !std::isfinite(std::fabs(o.mean) + kFarthest * o.deviation)) {
    return Refuse("initializer.deviation", Text(o.deviation),
                  "initial values, up to " + Text(kFarthest) +
                      " deviations away from initializer.mean, must be finite, and the mean is " +
                      Text(o.mean));
  }
  return {};
}

}  // namespace

bool operator==(const OptimizerOptions& one, const OptimizerOptions& other) { return SayTheSame(one, other); }
bool operator==(const EvictionOptions& one, const EvictionOptions& other) { return SayTheSame(one, other); }
bool operator==(const AdmissionOptions& one, const AdmissionOptions& other) { return SayTheSame(one, other); }
bool operator==(const InitializerOptions& one, const InitializerOptions& other) {
  return SayTheSame(one, other);
}

Status ValidateLearningRate(float learning_rate) {
  return CheckRange("optimizer.", Option<float>{"learning_rate", 0, kAbove0}, learning_rate);
}

Status ValidateStepRate(float learning_rate, const TableOptions& table) {
  const OptimizerOptions& optimizer = table.optimizer;
  const Range& range = optimizer.kind == OptimizerKind::kFtrl ? kAbove0 : kNotNegative;  // ftrl divides by it
  if (Status status = CheckRange("", Option<float>{"learning_rate", 0, range}, learning_rate); !status.ok())
    return status;
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

TableOptions Altered(const TableOptions& made, const TableOptions& now, const TableAlteration& alteration) {
  TableOptions options = now;
  options.max_rows = alteration.max_rows.value_or(now.max_rows);
  options.eviction = alteration.eviction.value_or(now.eviction);
  options.ttl_steps = alteration.ttl_steps.value_or(now.ttl_steps);
  options.ttl_seconds = alteration.ttl_seconds.value_or(now.ttl_seconds);
  options.admission = alteration.admission.value_or(now.admission);
  options.initial_rows = std::min(made.initial_rows, options.max_rows);
  return options;
}

bool DifferByAlteration(const TableOptions& one, const TableOptions& other) {
  TableOptions altered = one;
  altered.max_rows = other.max_rows;
  altered.eviction = other.eviction;
  altered.ttl_steps = other.ttl_steps;
  altered.ttl_seconds = other.ttl_seconds;
  altered.admission = other.admission;
  altered.initial_rows = other.initial_rows;
  return altered == other;
}

TableOptions WithRows(TableOptions options, const RowType& as) {
  options.row_dtype = as.dtype;
  options.rounding = as.rounding;
  return options;
}

bool KeepsRows(const TableOptions& before, const TableOptions& after) {
  return before.has_scores() == after.has_scores() &&
         CountsOccurrences(before.score()) == CountsOccurrences(after.score()) &&
         before.max_rows <= after.max_rows;
}

bool KeepsCounts(const TableOptions& before, const TableOptions& after) {
  return before.has_candidates() && after.has_candidates() &&
         before.admission.counter == after.admission.counter &&
         before.admission.counter_mib == after.admission.counter_mib;
}

TableOptions CandidatesOf(const TableOptions& options) {
  TableOptions candidates;
  candidates.name = TableName(options.name.str().append(kCandidatesSuffix));
  candidates.dim = 1;
  candidates.initializer = {.low = 0, .high = 0, .kind = InitializerKind::kConstant};
  if (options.has_bloom_counter()) {
    candidates.dim = BloomCounter::kFloats;
    candidates.max_rows = candidates.initial_rows =
        BloomCounter::BlocksOfBucket(options.admission.counter_mib) * BloomCounter::kBuckets;
    candidates.max_load = options.max_load;
    return candidates;
  }
  candidates.max_rows = options.admission.max_keys == 0 ? options.max_rows : options.admission.max_keys;
  candidates.max_load = options.max_load;
  candidates.eviction = {.score = ScoreKind::kLfu};
  return candidates;
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
  const std::string_view name = options.name.view();
  add(ValidateTableName(name.substr(0, name.size() - (IsOfCandidates(name) ? kCandidatesSuffix.size() : 0))));
  ForEachOption(options, [&add]<class T>(const Option<T>& option, const T& value) {
    add(CheckRange("", option, value));
  });
  if (ToString(options.combiner) == kUnknown) add(NoKind<Combiner>("combiner", options.combiner));
  if (options.combiner == Combiner::kNone && options.slots > 1) {
    add(Refuse("slots", std::to_string(options.slots), "must be 1 in a table without a combiner"));
  }
  add(ValidateOptimizer(options.optimizer));
  add(ValidateInitializer(options.initializer));
  add(ValidateRowType(options));
  if (options.evicts()) add(ValidateEviction(options));
  if (options.admits()) add(ValidateAdmission(options));
  if (options.initial_rows > options.max_rows) {
    add(Refuse("initial_rows", std::to_string(options.initial_rows),
               "must not be above max_rows, which is " + std::to_string(options.max_rows)));
  }
  return errors;
}

Status Validate(const TableOptions& options) {
  const std::vector<Status> errors = ErrorsIn(options);
  return errors.empty() ? Status() : errors.front();
}

std::string FirstDifference(const TableOptions& there, const TableOptions& asked) {
  const OptionTexts is = TextsOf(there);
  const OptionTexts wanted = TextsOf(asked);
  // The constants of two kinds differ in number, behind the kinds.
  for (std::size_t i = 0; i < std::min(is.size(), wanted.size()); ++i) {
    if (is[i] != wanted[i]) return is[i].first + " is " + is[i].second + ", not " + wanted[i].second;
  }
  return {};
}

}  // namespace slotwise
