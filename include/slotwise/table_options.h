// TableOptions say what a table is: its shape, how it pools bags, how it learns, and how a new row begins.
//
// `TableOptions` is trivially copyable, so that one rank can send it to the others as bytes. Two tables with
// equal options answer the same inputs with the same bytes, on any backend and any number of ranks.
// Thread-safety: plain values.
#ifndef SLOTWISE_TABLE_OPTIONS_H_
#define SLOTWISE_TABLE_OPTIONS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

// A table's name has 1 to 255 of the characters A-Z a-z 0-9 _ . - / . None of the parts between its slashes
// is empty or begins with '.' or '-', so that a name is also a path that stays in its folder.
class TableName {
 public:
  static constexpr std::size_t kMaxLength = 255;

  TableName() = default;
  // Keeps the first kMaxLength + 1 characters of `name`; Validate() refuses a name that is too long.
  explicit TableName(std::string_view name);

  std::string_view view() const { return {text_.data(), length_}; }
  std::string str() const { return std::string(view()); }

  friend bool operator==(const TableName&, const TableName&) = default;

 private:
  std::array<char, kMaxLength + 1> text_{};
  std::uint16_t length_ = 0;
};

// How the rows of one bag become one vector. n is the number of all keys in the bag, repeated and absent keys
// too. With weights w, each row counts w · row, and n is Σ w for the mean and Σ w² for sqrtn.
enum class Combiner : std::uint8_t {
  kSum,    // Σ row
  kMean,   // Σ row / n
  kSqrtn,  // Σ row / √n
  kNone,   // bags have exactly one key, and its row is the result; `slots` must be 1
};

// Whether the combiner divides a bag's sum.
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

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

enum class InitializerKind : std::uint8_t {
  kUniform,   // in [low, high); low == high is a constant
  kNormal,    // mean, deviation
  kConstant,  // mean
};

// How a new row's first values are drawn; they depend on (seed, key, element) alone.
struct InitializerOptions {
  float low = -0.05F;
  float high = 0.05F;
  std::uint64_t seed = 0;
  InitializerKind kind = InitializerKind::kUniform;
  float mean = 0.0F;
  float deviation = 0.0F;

  friend bool operator==(const InitializerOptions&, const InitializerOptions&) = default;
};

struct TableOptions {
  static constexpr std::uint32_t kMaxDim = 4096;
  static constexpr std::uint32_t kMaxSlots = 4096;
  static constexpr std::uint64_t kMaxMaxRows = std::uint64_t{1} << 40;
  static constexpr float kLeastMaxLoad = 0.0625F;
  static constexpr float kMostMaxLoad = 0.9375F;

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

  friend bool operator==(const TableOptions&, const TableOptions&) = default;
};

static_assert(std::is_trivially_copyable_v<TableOptions>, "tables are announced to other ranks as bytes");

// Returns INVALID_ARGUMENT with the field and its value if `options` cannot make a table.
Status Validate(const TableOptions& options);

// INVALID_ARGUMENT unless it is a legal name of a table.
Status ValidateTableName(std::string_view name);

// Returns INVALID_ARGUMENT unless `learning_rate` is finite and above 0.
Status ValidateLearningRate(float learning_rate);

// Returns INVALID_ARGUMENT unless a step of a table may bring this learning rate of its own: it is finite, at
// least 0, and above 0 for FTRL, and the table has no schedule.
Status ValidateStepRate(float learning_rate, const TableOptions& table);

// Returns the first option, other than the name, that differs, as "dim is 16, not 8"; empty if none does.
std::string FirstDifference(const TableOptions& there, const TableOptions& asked);

// Returns "sum", "mean", "sqrtn" or "none"; "sgd", "adagrad", "rowwise_adagrad", ...
std::string_view ToString(Combiner combiner);
std::string_view ToString(OptimizerKind kind);

// Returns all kinds of one of these enumerations, in their order. The numbers of kinds go from 0 up to the
// first that ToString, which does not compile without a name for each kind, calls "unknown".
template <class T>
std::vector<T> EveryKind() {
  std::vector<T> kinds;
  for (T kind{}; ToString(kind) != "unknown"; kind = static_cast<T>(static_cast<int>(kind) + 1))
    kinds.push_back(kind);
  return kinds;
}
std::string_view ToString(InitializerKind kind);  // "uniform", "normal" or "constant"

// Returns how many floats an optimizer keeps beside each row of `dim` values: vectors of `dim`, but one float
// for RowWiseAdaGrad.
constexpr std::uint32_t StateFloats(OptimizerKind kind, std::uint32_t dim) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kRowWiseAdaGrad:
      return 1;
    case OptimizerKind::kAdaGrad:
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
    case OptimizerKind::kRmsProp:
      return dim;
    case OptimizerKind::kAdam:
    case OptimizerKind::kFtrl:
      return 2 * dim;
  }
  return 0;
}

// Returns where a row's sums or means of squares begin in its state. They are never negative, and they reach
// to the state's end. Returns StateFloats(kind, dim) for an optimizer that keeps no squares.
constexpr std::uint32_t SquaresBegin(OptimizerKind kind, std::uint32_t dim) {
  switch (kind) {
    case OptimizerKind::kAdaGrad:
    case OptimizerKind::kRowWiseAdaGrad:
    case OptimizerKind::kRmsProp:
      return 0;
    case OptimizerKind::kAdam:
    case OptimizerKind::kFtrl:
      return dim;
    case OptimizerKind::kSgd:
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return StateFloats(kind, dim);
  }
  return 0;
}

}  // namespace slotwise

#endif  // SLOTWISE_TABLE_OPTIONS_H_
