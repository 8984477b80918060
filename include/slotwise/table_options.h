// TableOptions say what a table is: its shape, how it pools bags, how it learns, and how a new row begins.
//
// The lists below (ForEachOption, ForEachConstant, StatesOf) are the only ones of options, of constants of
// kinds and of optimizers' state. Messages, checks, checkpoints and errors go by the lists,
// under the names of proto/slotwise/v1/admin.proto. wire/schema_check.cc fails the build if the lists and the
// messages differ. CONTRIBUTING.md has the recipes for another optimizer and another option.
//
// `TableOptions` is trivially copyable, so that one rank can send it to the others as bytes. Two tables with
// equal options answer the same inputs with the same bytes, on any backend and any number of ranks.
// Thread-safety: plain values.
#ifndef SLOTWISE_TABLE_OPTIONS_H_
#define SLOTWISE_TABLE_OPTIONS_H_

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

// A kind that one of the switches below leaves out does not compile.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

namespace slotwise {

// ToString returns kUnknown for a number that is no kind.
inline constexpr std::string_view kUnknown = "unknown";

// A table's name has 1 to 255 of the characters A-Z a-z 0-9 _ . - / . None of the parts between its slashes
// is empty or begins with '.' or '-', so that a name is also a path that stays in its folder.
class TableName {
 public:
  static constexpr std::size_t kMaxLength = 255;

  TableName() = default;
  // Keeps the first kMaxLength + 1 characters of `name`; Validate() refuses a name that is too long.
  explicit TableName(std::string_view name);

  constexpr std::string_view view() const { return {text_.data(), length_}; }
  std::string str() const { return std::string(view()); }

  friend bool operator==(const TableName&, const TableName&) = default;

 private:
  std::array<char, kMaxLength + 1> text_{};
  std::uint16_t length_ = 0;
};

// A table that counts how often keys occur before they get rows keeps the counts in a table beside it, which
// clients do not see: the candidates' table. Its name ends with this, which no table of a client has.
inline constexpr std::string_view kCandidatesSuffix = "/.candidates";
constexpr bool IsOfCandidates(std::string_view name) { return name.ends_with(kCandidatesSuffix); }

// Says how the rows of one bag become one vector. n is the number of all keys in the bag, repeated and absent
// keys too. With weights w, each row counts w · row, and n is Σ w for the mean and Σ w² for sqrtn.
enum class Combiner : std::uint8_t {
  kSum,    // Σ row
  kMean,   // Σ row / n
  kSqrtn,  // Σ row / √n
  kNone,   // bags have exactly one key, and its row is the result; `slots` must be 1
};

// Returns whether the combiner divides a bag's sum.
constexpr bool Divides(Combiner combiner) {
  return combiner == Combiner::kMean || combiner == Combiner::kSqrtn;
}

enum class OptimizerKind : std::uint8_t {
  kSgd,
  kAdaGrad,
  kAdam,
  kMomentum,
  kNesterov,
  kRowWiseAdaGrad,
  kRmsProp,
  kFtrl,
};

// The schedule of the learning rate lr over the table's steps t = 1, 2, ...: HugeCTR's warm-up and polynomial
// decay.
struct ScheduleOptions {
  std::uint64_t warmup_steps = 0;  // lr · t / warmup_steps at steps 1 .. warmup_steps
  std::uint64_t decay_start = 0;   // the last step before the rate falls, at least warmup_steps
  std::uint64_t decay_steps = 0;   // 0: the rate never falls
  float decay_power = 2.0F;  // end + (lr − end) · (1 − min(t − decay_start, decay_steps) / decay_steps)^power
  float end_learning_rate = 0.0F;  // end

  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// The optimizer's kind and constants; constants of other kinds are ignored. docs/semantics.md has the
// formulas.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01F;
  ScheduleOptions schedule = {};
  float weight_decay = 0.0F;  // all: g += weight_decay · w first
  float epsilon = 1e-10F;     // AdaGrad and RowWiseAdaGrad 1e-10, Adam and RMSProp 1e-8 (PyTorch's defaults)
  float initial_accumulator = 0.0F;  // AdaGrad, RowWiseAdaGrad: s of a new row
  float momentum = 0.9F;             // Momentum, Nesterov: μ
  float beta1 = 0.9F;                // Adam
  float beta2 = 0.999F;              // Adam; RMSProp's β, 0.99
  bool corrected_epsilon = false;  // Adam: ε · √(1 − β₂ᵗ) in ε's place, as torch.optim.Adam has it
  bool decoupled_decay = false;    // Adam: w −= lr · weight_decay · w first, and g stays (AdamW)
  float ftrl_beta = 1.0F;          // FTRL
  float lambda1 = 0.0F;            // FTRL
  float lambda2 = 0.0F;            // FTRL

  // Returns whether two are the same optimizer, whatever constants of other kinds are.
  friend bool operator==(const OptimizerOptions& one, const OptimizerOptions& other);
};

enum class InitializerKind : std::uint8_t {
  kUniform,   // in [low, high); low == high is a constant
  kNormal,    // mean, deviation
  kConstant,  // mean
};

// Says how a new row's initial values are drawn; they depend on (seed, key, element) alone.
struct InitializerOptions {
  float low = -0.05F;
  float high = 0.05F;
  std::uint64_t seed = 0;
  InitializerKind kind = InitializerKind::kUniform;
  float mean = 0.0F;
  float deviation = 0.0F;

  // Returns whether two are the same initializer, whatever constants of other kinds are.
  friend bool operator==(const InitializerOptions& one, const InitializerOptions& other);
};

// Says how a row is scored: the rows with the lowest scores are evicted first (docs/semantics.md).
enum class ScoreKind : std::uint8_t {
  kNone,     // the table keeps no scores; a full table refuses new keys
  kStep,     // the table's step in which a push touched the row last (LRU)
  kLfu,      // how often the row's key occurred in pushes, halved every half_life_steps steps
  kStepLfu,  // as kLfu, and among equals as kStep
};
constexpr bool CountsOccurrences(ScoreKind kind) {
  return kind == ScoreKind::kLfu || kind == ScoreKind::kStepLfu;
}

// Says which rows go when a table gets full. After a batch, a table has at most max_rows · at rows; if a
// batch would bring more, rows go until there are at most max_rows · to.
struct EvictionOptions {
  static constexpr std::uint64_t kMaxHalfLife = (std::uint64_t{1} << 36) - 2;

  ScoreKind score = ScoreKind::kNone;
  std::uint64_t half_life_steps = 0;  // 0: counts of occurrences are never halved
  float at = 1.0F;
  float to = 0.95F;

  // Returns whether two are the same, whatever `at` and `to` of tables without scores are.
  friend bool operator==(const EvictionOptions& one, const EvictionOptions& other);
};

enum class AdmissionKind : std::uint8_t {
  kNone,         // every key that comes gets a row
  kFrequency,    // a key gets a row in the push in which it has occurred `threshold` times
  kProbability,  // a key gets a row in a push with probability `probability`
};

// Says what a TRAIN lookup returns for a key without a row in a table with an admission.
enum class AbsentRows : std::uint8_t {
  kInitial,  // the initial values that the key's row would have
  kZeros,
};

// Says what counts the occurrences of keys without a row, for an admission by frequency.
enum class CounterKind : std::uint8_t {
  kExact,  // a count a key, of at most max_keys keys
  kBloom,  // a filter of a fixed size, whose counts may be too high (BloomCounter)
};

// The shape of the Bloom counter: a counting filter in blocks. docs/semantics.md has its rules and its error.
struct BloomCounter {
  static constexpr std::uint32_t kFloats = 16;  // of a block: 15 words of three counters, and a tally
  static constexpr std::uint64_t kBlockBytes = kFloats * sizeof(float);
  static constexpr std::uint64_t kBuckets = 4096;
  static constexpr std::uint64_t kMaxThreshold = 255;  // a counter has 8 bits
  static constexpr std::uint64_t kMaxMib = std::uint64_t{1} << 17;
  static constexpr std::uint32_t kOccurrencesAThreshold = 6;

  // Returns how many blocks each of the kBuckets buckets of keys has.
  static constexpr std::uint64_t BlocksOfBucket(std::uint64_t counter_mib) {
    return (counter_mib << 20) / kBlockBytes / kBuckets;
  }
  // Returns how many occurrences a block counts until its counts halve.
  static constexpr std::uint32_t WindowOf(std::uint64_t threshold) {
    return kOccurrencesAThreshold * static_cast<std::uint32_t>(threshold);
  }
};
static_assert(BloomCounter::BlocksOfBucket(1) > 0);

// Says which keys get a row. With kNone every key does, and the other options are ignored.
struct AdmissionOptions {
  static constexpr std::uint64_t kMaxThreshold = (std::uint64_t{1} << 27) - 1;
  static constexpr float kLeastProbability = 1e-9F;

  AdmissionKind kind = AdmissionKind::kNone;
  std::uint64_t threshold = 0;  // kFrequency: occurrences, 1 .. kMaxThreshold; kBloom: at most 255
  std::uint64_t max_keys = 0;   // kExact: the most keys that are counted, over all ranks; 0: max_rows
  CounterKind counter = CounterKind::kExact;  // kFrequency
  std::uint64_t counter_mib = 0;  // kBloom: MiB of all blocks, over all ranks, 1 .. BloomCounter::kMaxMib
  float probability = 0.0F;       // kProbability: kLeastProbability .. 1
  AbsentRows absent = AbsentRows::kInitial;

  // Returns whether two are the same, whatever options are of another kind.
  friend bool operator==(const AdmissionOptions& one, const AdmissionOptions& other);
};

// Says how a step rounds new weights to a row's type. Imports and initial values are rounded to nearest.
enum class Rounding : std::uint8_t {
  kStochastic,  // up or down, by chance: the nearer neighbour is the likelier one, and the mean is the weight
  kNearest,     // ties to even
};

// A RowType says what rows' values are kept as, and how a step rounds to that type.
struct RowType {
  DataType dtype = DataType::kFloat32;
  Rounding rounding = Rounding::kStochastic;  // of 16 bits

  friend bool operator==(const RowType&, const RowType&) = default;
};

struct TableOptions {
  static constexpr std::uint32_t kMaxDim = 4096;
  static constexpr std::uint32_t kMaxSlots = 4096;
  static constexpr std::uint64_t kMaxMaxRows = std::uint64_t{1} << 40;
  static constexpr float kLeastMaxLoad = 0.0625F;
  static constexpr float kMostMaxLoad = 0.9375F;
  static constexpr std::uint64_t kMaxTtlSteps = EvictionOptions::kMaxHalfLife;
  static constexpr std::uint64_t kMaxTtlSeconds = std::uint64_t{1} << 32;

  TableName name;
  std::uint32_t dim = 0;    // elements a row, 1 .. kMaxDim
  std::uint32_t slots = 1;  // bags a sample, 1 .. kMaxSlots
  Combiner combiner = Combiner::kSum;
  OptimizerOptions optimizer;
  InitializerOptions initializer;
  std::uint64_t initial_rows = 0;  // rows to reserve when the table is made, over all ranks
  std::uint64_t max_rows = std::uint64_t{1}
                           << 30;  // the most rows over all ranks; past it a batch is refused
  // At most this share of the hash table's cells is taken, kLeastMaxLoad .. kMostMaxLoad. Searches are
  // faster in an emptier hash table, and a fuller hash table is smaller. The number of cells is a power of
  // two, so the actual share grows from max_load / 2 to max_load before the hash table doubles.
  float max_load = 0.5F;
  EvictionOptions eviction;
  // A row expires when no push has touched it for so many of the table's steps, or seconds. 0: never.
  std::uint64_t ttl_steps = 0;
  std::uint64_t ttl_seconds = 0;
  AdmissionOptions admission;
  DataType row_dtype = DataType::kFloat32;  // of a row's values; its optimizer's state is float32
  Rounding rounding = Rounding::kStochastic;

  constexpr bool evicts() const { return eviction.score != ScoreKind::kNone; }
  constexpr bool expires() const { return ttl_steps > 0 || ttl_seconds > 0; }
  // Returns the score that rows have. Every score says in which step a push touched the row last.
  constexpr ScoreKind score() const { return evicts() || !expires() ? eviction.score : ScoreKind::kStep; }
  constexpr bool has_scores() const { return score() != ScoreKind::kNone; }
  constexpr bool admits() const { return admission.kind != AdmissionKind::kNone; }
  constexpr bool has_candidates() const { return admission.kind == AdmissionKind::kFrequency; }
  constexpr bool has_bloom_counter() const {
    return has_candidates() && admission.counter == CounterKind::kBloom;
  }

  friend bool operator==(const TableOptions&, const TableOptions&) = default;
};

static_assert(std::is_trivially_copyable_v<TableOptions>, "tables are proposed to other ranks as bytes");

// Says which options of a table change, and to what. An option that is not given stays as it is.
struct TableAlteration {
  std::optional<std::uint64_t> max_rows = {};
  std::optional<EvictionOptions> eviction = {};  // kNone: a full table evicts no rows any more
  std::optional<std::uint64_t> ttl_steps = {};   // 0: rows do not expire by steps any more
  std::optional<std::uint64_t> ttl_seconds = {};
  std::optional<AdmissionOptions> admission = {};  // kNone: all keys get rows

  friend bool operator==(const TableAlteration&, const TableAlteration&) = default;
};
static_assert(std::is_trivially_copyable_v<TableAlteration>, "ranks tell each other alterations as bytes");

// Returns INVALID_ARGUMENT with the field and its value if `options` cannot make a table.
Status Validate(const TableOptions& options);

// Returns the options `now` of a table, altered. The table was made with `made`: its initial_rows stay, as
// far as max_rows allows. The result may be invalid.
TableOptions Altered(const TableOptions& made, const TableOptions& now, const TableAlteration& alteration);

// Returns whether an alteration can make a table with one of these options of a table with the other.
bool DifferByAlteration(const TableOptions& one, const TableOptions& other);

// Returns the options of a table whose rows are loaded as another type. The result may be invalid.
TableOptions WithRows(TableOptions options, const RowType& as);

// Returns whether the rows of a table with the options `before` are, as they are, all rows that the table can
// have once it has the options `after`: so scores are alike, and max_rows has not fallen. A checkpoint of
// changes alone may follow one of before. REQUIRES: DifferByAlteration(before, after).
bool KeepsRows(const TableOptions& before, const TableOptions& after);

// Returns INVALID_ARGUMENT unless `name` is a legal name of a table.
Status ValidateTableName(std::string_view name);

// Returns the id of the candidates' table of a table that is made with one: the next one. A table that gets
// an admission later has one with any later id.
constexpr TableId IdOfCandidates(TableId of) { return TableId{Value(of) + 1}; }

// Returns the options of the candidates' table. REQUIRES: options.has_candidates(). A row of the exact
// counter has nothing but a score, which counts; the rows that no push has touched for longest go first. A
// row of the Bloom counter is a block; there is room for all blocks from the start.
TableOptions CandidatesOf(const TableOptions& options);

// Returns whether a table's counts stay as they are when it gets the options `after`, but for those that a
// lower max_keys forgets. REQUIRES: DifferByAlteration(before, after).
bool KeepsCounts(const TableOptions& before, const TableOptions& after);

// Returns INVALID_ARGUMENT unless `learning_rate` is finite and above 0.
Status ValidateLearningRate(float learning_rate);

// Returns INVALID_ARGUMENT unless a step of a table may bring this learning rate of its own: it is finite, at
// least 0, and above 0 for FTRL, and the table has no schedule.
Status ValidateStepRate(float learning_rate, const TableOptions& table);

// Returns the first option, other than the name, that differs, as "dim is 16, not 8"; empty if none does.
std::string FirstDifference(const TableOptions& there, const TableOptions& asked);

// Returns "sum", "mean", "sqrtn" or "none".
constexpr std::string_view ToString(Combiner combiner) {
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
  return kUnknown;
}

// Returns the optimizer's name in admin.proto: "sgd", "adagrad", "rowwise_adagrad", ...
constexpr std::string_view ToString(OptimizerKind kind) {
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
  return kUnknown;
}

// Returns "uniform", "normal" or "constant".
constexpr std::string_view ToString(InitializerKind kind) {
  switch (kind) {
    case InitializerKind::kUniform:
      return "uniform";
    case InitializerKind::kNormal:
      return "normal";
    case InitializerKind::kConstant:
      return "constant";
  }
  return kUnknown;
}

// Returns "none", "step", "lfu" or "step_lfu".
constexpr std::string_view ToString(ScoreKind kind) {
  switch (kind) {
    case ScoreKind::kNone:
      return "none";
    case ScoreKind::kStep:
      return "step";
    case ScoreKind::kLfu:
      return "lfu";
    case ScoreKind::kStepLfu:
      return "step_lfu";
  }
  return kUnknown;
}

// Returns "none", "frequency" or "probability".
constexpr std::string_view ToString(AdmissionKind kind) {
  switch (kind) {
    case AdmissionKind::kNone:
      return "none";
    case AdmissionKind::kFrequency:
      return "frequency";
    case AdmissionKind::kProbability:
      return "probability";
  }
  return kUnknown;
}

// Returns "initial" or "zeros".
constexpr std::string_view ToString(AbsentRows kind) {
  switch (kind) {
    case AbsentRows::kInitial:
      return "initial";
    case AbsentRows::kZeros:
      return "zeros";
  }
  return kUnknown;
}

// Returns "exact" or "bloom".
constexpr std::string_view ToString(CounterKind counter) {
  switch (counter) {
    case CounterKind::kExact:
      return "exact";
    case CounterKind::kBloom:
      return "bloom";
  }
  return kUnknown;
}

// Returns "stochastic" or "nearest".
constexpr std::string_view ToString(Rounding rounding) {
  switch (rounding) {
    case Rounding::kStochastic:
      return "stochastic";
    case Rounding::kNearest:
      return "nearest";
  }
  return kUnknown;
}

// Returns all kinds of one of these enumerations, in their order. The numbers of kinds go from 0 up to the
// first without a name.
template <class T>
constexpr std::vector<T> EveryKind() {
  std::vector<T> kinds;
  for (T kind{}; ToString(kind) != kUnknown; kind = static_cast<T>(static_cast<int>(kind) + 1))
    kinds.push_back(kind);
  return kinds;
}

// The values that an option may have.
struct Range {
  double least = 0;
  double most = std::numeric_limits<double>::max();
  bool above_least = false;    // `least` itself is refused
  bool below_most = false;     // `most` itself is refused
  std::string_view rule = {};  // the words of a refusal; empty: "must be LEAST to MOST"

  // Returns false for NaN. (NOLINT: the bounds read as they are said.)
  constexpr bool Has(double value) const {
    return value >= least && value <= most && !(above_least && value == least) &&  // NOLINT
           !(below_most && value == most);                                         // NOLINT
  }
};
inline constexpr double kLargestFloat = std::numeric_limits<float>::max();
inline constexpr Range kFinite{.least = -kLargestFloat, .most = kLargestFloat, .rule = "must be finite"};
inline constexpr Range kNotNegative{.most = kLargestFloat, .rule = "must be finite and not negative"};
inline constexpr Range kAbove0{
    .most = kLargestFloat, .above_least = true, .rule = "must be finite and above 0"};
inline constexpr Range kShare{.most = 1, .above_least = true, .rule = "must be above 0 and at most 1"};
inline constexpr Range kBelow1{.most = 1, .below_most = true, .rule = "must be at least 0 and below 1"};

// Describes an option.
template <class T>
struct Option {
  std::string_view name;  // the name of its field in admin.proto
  T otherwise = {};       // the value if a message does not set it
  Range range = {};
  std::string_view help = {};  // the help of its flag in slotwise-ctl
};

template <class T, class Of>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Of>;

// Calls visit(Option, value) for every option of a table beside its name, its optimizer and its initializer.
template <MaybeConst<TableOptions> T, class Visit>
constexpr void ForEachOption(T& o, const Visit& visit) {
  constexpr TableOptions kNew;
  visit(Option<std::uint32_t>{"dim", 0, {1, TableOptions::kMaxDim}, "elements a row"}, o.dim);
  visit(Option<std::uint32_t>{"slots", kNew.slots, {1, TableOptions::kMaxSlots}, "bags a sample (1)"},
        o.slots);
  visit(Option<Combiner>{"combiner", kNew.combiner, {}, "sum (default), mean, sqrtn or none"}, o.combiner);
  visit(Option<std::uint64_t>{"initial_rows", 0, {}, "rows to make room for at once"}, o.initial_rows);
  visit(
      Option<std::uint64_t>{
          "max_rows", kNew.max_rows, {1, TableOptions::kMaxMaxRows}, "the most rows over all ranks (2^30)"},
      o.max_rows);
  visit(Option<float>{"max_load",
                      kNew.max_load,
                      {TableOptions::kLeastMaxLoad, TableOptions::kMostMaxLoad},
                      "at most this share of the cells is taken (0.5)"},
        o.max_load);
  visit(Option<std::uint64_t>{"ttl_steps",
                              0,
                              {.most = TableOptions::kMaxTtlSteps},
                              "a row goes that no push has touched for so many steps (0: never)"},
        o.ttl_steps);
  visit(Option<std::uint64_t>{"ttl_seconds",
                              0,
                              {.most = TableOptions::kMaxTtlSeconds},
                              "a row goes that no push has touched for so many seconds (0: never)"},
        o.ttl_seconds);
  visit(Option<DataType>{"row_dtype",
                         DataType::kFloat32,
                         {},
                         "float32 (default), float16 or bfloat16: the type of a row's values"},
        o.row_dtype);
  visit(Option<Rounding>{"rounding",
                         Rounding::kStochastic,
                         {},
                         "stochastic (default) or nearest: how a step rounds weights to 16 bits"},
        o.rounding);
}

// Does the same for the options of a table that evicts, ...
template <MaybeConst<EvictionOptions> T, class Visit>
constexpr void ForEachOption(T& o, const Visit& visit) {
  visit(Option<ScoreKind>{"score", ScoreKind::kStep}, o.score);
  visit(Option<std::uint64_t>{"half_life_steps",
                              0,
                              {.most = EvictionOptions::kMaxHalfLife},
                              "counts of occurrences halve every so many steps (0: never)"},
        o.half_life_steps);
  visit(Option<float>{"at", 1.0F, kShare, "a full table evicts at this share of max_rows (1)"}, o.at);
  visit(Option<float>{"to", 0.95F, kShare, "and keeps at most this share (0.95)"}, o.to);
}
// ... of a table that admits keys, ...
template <MaybeConst<AdmissionOptions> T, class Visit>
constexpr void ForEachOption(T& o, const Visit& visit) {
  visit(Option<AbsentRows>{"absent", AbsentRows::kInitial}, o.absent);
}
// ... for those of every optimizer, ...
template <MaybeConst<OptimizerOptions> T, class Visit>
constexpr void ForEachOption(T& o, const Visit& visit) {
  visit(Option<float>{"learning_rate", 0, kAbove0, "above 0"}, o.learning_rate);
  visit(Option<float>{"weight_decay", 0, kNotNegative,
                      "times a touched row's weights, added to the gradient (0)"},
        o.weight_decay);
}
// ... for a schedule, ...
template <MaybeConst<ScheduleOptions> T, class Visit>
constexpr void ForEachOption(T& o, const Visit& visit) {
  visit(Option<std::uint64_t>{"warmup_steps"}, o.warmup_steps);
  visit(Option<std::uint64_t>{"decay_start"}, o.decay_start);
  visit(Option<std::uint64_t>{"decay_steps"}, o.decay_steps);
  visit(Option<float>{"decay_power", 2.0F, kAbove0}, o.decay_power);
  visit(Option<float>{"end_learning_rate", 0, kNotNegative}, o.end_learning_rate);
}
// ... and for the options of every initializer.
template <MaybeConst<InitializerOptions> T, class Visit>
constexpr void ForEachOption(T& o, const Visit& visit) {
  visit(Option<std::uint64_t>{"seed", 0, {}, "of initial values (0)"}, o.seed);
}

// Calls visit(Option, value) for the constants of the optimizer's kind. Epsilon must be above 0, because a
// row whose gradient is 0 divides by √0 + ε.
template <MaybeConst<OptimizerOptions> T, class Visit>
constexpr void ForEachConstant(T& o, const Visit& visit) {
  switch (o.kind) {
    case OptimizerKind::kSgd:
      return;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return visit(Option<float>{"momentum", 0.9F, kBelow1}, o.momentum);
    case OptimizerKind::kAdaGrad:
    case OptimizerKind::kRowWiseAdaGrad:
      visit(Option<float>{"initial_accumulator", 0, kNotNegative}, o.initial_accumulator);
      return visit(Option<float>{"epsilon", 1e-10F, kAbove0}, o.epsilon);
    case OptimizerKind::kRmsProp:
      visit(Option<float>{"beta", 0.99F, kBelow1}, o.beta2);
      return visit(Option<float>{"epsilon", 1e-8F, kAbove0}, o.epsilon);
    case OptimizerKind::kAdam:
      visit(Option<float>{"beta1", 0.9F, kBelow1}, o.beta1);
      visit(Option<float>{"beta2", 0.999F, kBelow1}, o.beta2);
      visit(Option<float>{"epsilon", 1e-8F, kAbove0}, o.epsilon);
      visit(Option<bool>{"corrected_epsilon"}, o.corrected_epsilon);
      return visit(Option<bool>{"decoupled_decay"}, o.decoupled_decay);
    case OptimizerKind::kFtrl:
      visit(Option<float>{"lambda1", 0, kNotNegative}, o.lambda1);
      visit(Option<float>{"lambda2", 0, kNotNegative}, o.lambda2);
      return visit(Option<float>{"beta", 1.0F, kAbove0}, o.ftrl_beta);
  }
}

// Does the same for the constants of the admission's kind.
template <MaybeConst<AdmissionOptions> T, class Visit>
constexpr void ForEachConstant(T& o, const Visit& visit) {
  switch (o.kind) {
    case AdmissionKind::kNone:
      return;
    case AdmissionKind::kFrequency:
      visit(Option<std::uint64_t>{"threshold", 0, {1, AdmissionOptions::kMaxThreshold}}, o.threshold);
      visit(Option<std::uint64_t>{"max_keys", 0, {.most = TableOptions::kMaxMaxRows}}, o.max_keys);
      visit(Option<CounterKind>{"counter", CounterKind::kExact}, o.counter);
      return visit(Option<std::uint64_t>{"counter_mib", 0, {.most = BloomCounter::kMaxMib}}, o.counter_mib);
    case AdmissionKind::kProbability:
      return visit(Option<float>{"p", 0, {AdmissionOptions::kLeastProbability, 1}}, o.probability);
  }
}

// Does the same for the constants of the initializer's kind.
template <MaybeConst<InitializerOptions> T, class Visit>
constexpr void ForEachConstant(T& o, const Visit& visit) {
  switch (o.kind) {
    case InitializerKind::kUniform:
      visit(Option<float>{"low", 0, kFinite}, o.low);
      return visit(Option<float>{"high", 0, kFinite}, o.high);
    case InitializerKind::kNormal:
      visit(Option<float>{"mean", 0, kFinite}, o.mean);
      return visit(Option<float>{"deviation", 0, kNotNegative}, o.deviation);
    case InitializerKind::kConstant:
      return visit(Option<float>{"value", 0, kFinite}, o.mean);
  }
}

// One array of an optimizer's state: dim floats a row, or one float a row.
struct StateArray {
  std::string_view name;     // in its file's name in a checkpoint: rank-<r>.<name>.npy
  bool is_square = false;    // whether it has sums or means of squares, which are never negative
  bool one_a_row = false;    // whether it has one float a row; such an optimizer has no other array
  bool accumulates = false;  // whether a new row begins at initial_accumulator, not at 0
};

namespace states {
inline constexpr std::array<StateArray, 1> kVelocity{{{.name = "v"}}};
inline constexpr std::array<StateArray, 1> kStep{{{.name = "a"}}};
inline constexpr std::array<StateArray, 1> kSquares{{{.name = "s", .is_square = true, .accumulates = true}}};
inline constexpr std::array<StateArray, 1> kSquareOfRow{
    {{.name = "s", .is_square = true, .one_a_row = true, .accumulates = true}}};
inline constexpr std::array<StateArray, 1> kMeanOfSquares{{{.name = "v", .is_square = true}}};
inline constexpr std::array<StateArray, 2> kMoments{{{.name = "m"}, {.name = "v", .is_square = true}}};
inline constexpr std::array<StateArray, 2> kFtrl{{{.name = "z"}, {.name = "n", .is_square = true}}};
}  // namespace states

// Returns the arrays of an optimizer's state, in the order in which a row has them: squares are last.
constexpr std::span<const StateArray> StatesOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return {};
    case OptimizerKind::kAdaGrad:
      return states::kSquares;
    case OptimizerKind::kAdam:
      return states::kMoments;
    case OptimizerKind::kMomentum:
      return states::kVelocity;
    case OptimizerKind::kNesterov:
      return states::kStep;
    case OptimizerKind::kRowWiseAdaGrad:
      return states::kSquareOfRow;
    case OptimizerKind::kRmsProp:
      return states::kMeanOfSquares;
    case OptimizerKind::kFtrl:
      return states::kFtrl;
  }
  return {};
}

// Returns how many floats an optimizer keeps beside each row of `dim` values.
constexpr std::uint32_t StateFloats(OptimizerKind kind, std::uint32_t dim) {
  std::uint32_t floats = 0;
  for (const StateArray& state : StatesOf(kind)) floats += state.one_a_row ? 1 : dim;
  return floats;
}

// Returns a share of max_rows in whole rows. Shares count to a millionth, so that 0.9 of 10 rows are 9,
// although 0.9 as a float32 is less than that.
inline std::uint64_t RowsOfShare(std::uint64_t max_rows, float share) {
  constexpr std::uint64_t kParts = 1'000'000;
  const double parts = static_cast<double>(share) * static_cast<double>(kParts) + 0.5;
  return max_rows * static_cast<std::uint64_t>(parts) / kParts;
}

// A row's score is 64 bits, which a record has as the bits of two floats behind the optimizer's state.
inline constexpr std::uint32_t kScoreFloats = 2;
constexpr std::uint32_t ScoreFloats(const TableOptions& options) {
  return options.has_scores() ? kScoreFloats : 0;
}

// Returns how many floats a row's record has behind its values: the optimizer's state and the score.
constexpr std::uint32_t FloatsBehindValues(const TableOptions& options) {
  return StateFloats(options.optimizer.kind, options.dim) + ScoreFloats(options);
}
// Returns how many floats a row's record has.
constexpr std::uint32_t RecordFloats(const TableOptions& options) {
  return options.dim + FloatsBehindValues(options);
}

// Returns where a row's sums or means of squares begin in its state. They reach to the state's end. Returns
// StateFloats(kind, dim) for an optimizer that keeps no squares.
constexpr std::uint32_t SquaresBegin(OptimizerKind kind, std::uint32_t dim) {
  std::uint32_t begin = 0;
  for (const StateArray& state : StatesOf(kind)) {
    if (state.is_square) return begin;
    begin += state.one_a_row ? 1 : dim;
  }
  return begin;
}

// RecordColumns says where a record's sums or means of squares begin, and its score. `all` is its length.
struct RecordColumns {
  std::uint32_t squares = 0;
  std::uint32_t score = 0;
  std::uint32_t all = 0;

  // Returns those of a record that has values alone.
  static constexpr RecordColumns OfValues(std::uint32_t dim) { return {dim, dim, dim}; }
};
constexpr RecordColumns ColumnsOf(const TableOptions& options) {
  const std::uint32_t all = RecordFloats(options);
  return {options.dim + SquaresBegin(options.optimizer.kind, options.dim), all - ScoreFloats(options), all};
}

// A score that a row can have is below this, so that the score with its highest bit set is not kScoreOfNew.
inline constexpr std::uint64_t kScoreBound = (std::uint64_t{1} << 63) - 1;
// In an import, a row with this score gets the one that a new row would get.
inline constexpr std::uint64_t kScoreOfNew = ~std::uint64_t{0};

// Returns the score that a record has in these two floats.
inline std::uint64_t ScoreOf(const float* floats) {
  std::uint64_t score = 0;
  std::memcpy(&score, floats, sizeof(score));
  return score;
}

// Returns whether the optimizer keeps one float a row.
constexpr bool KeepsOneFloatARow(OptimizerKind kind) {
  return !StatesOf(kind).empty() && StatesOf(kind).front().one_a_row;
}

// Returns the value of every float of a new row's state.
constexpr float InitialState(const OptimizerOptions& optimizer) {
  const std::span<const StateArray> states = StatesOf(optimizer.kind);
  return !states.empty() && states.front().accumulates ? optimizer.initial_accumulator : 0.0F;
}

}  // namespace slotwise

#pragma GCC diagnostic pop

#endif  // SLOTWISE_TABLE_OPTIONS_H_
