#include "tests/sim/asks.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

namespace slotwise::sim {
namespace {

template <class T>
auto ArrayOf(const std::vector<T>& values) {
  BatchArray<T> array(values.size());
  std::ranges::copy(values, array.data());
  return array;
}

// Floats that the ask's values lie in: two numbers of 16 bits in each.
std::size_t WordsOf(const Ask& ask) { return (ask.values.size() * BytesOf(ask.type) + 3) / 4; }

BatchPart PartOf(const Ask& ask) {
  BatchPart part;
  part.samples = ask.samples;
  part.keys = ArrayOf(ask.batch.keys);
  part.offsets = ArrayOf(ask.batch.offsets);
  part.weights = ArrayOf(ask.batch.weights);
  part.values = BatchArray<float>(WordsOf(ask));
  part.value_type = ask.type;
  Narrow(ask.values, ask.type, reinterpret_cast<std::byte*>(part.values.data()));
  return part;
}

// Where the ask wants its answer, which has whatever its client wrote there.
std::shared_ptr<std::byte[]> PlaceOf(const Ask& ask) {
  if (!ask.placed || ask.answer_bytes == 0) return nullptr;
  return std::make_shared<std::byte[]>(ask.answer_bytes, std::byte{0x5A});
}

// A `done` of the engine's, which fills in `member` of the reply.
template <class T>
std::function<void(Result<T>)> Fill(T Reply::*member, std::function<void(Reply)> done) {
  return [member, done = std::move(done)](Result<T> result) {
    Reply reply;
    reply.status = result.status();
    if (result.ok()) reply.*member = *std::move(result);
    done(std::move(reply));
  };
}

std::function<void(Status)> FillNone(std::function<void(Reply)> done) {
  return [done = std::move(done)](Status status) { done({.status = std::move(status)}); };
}

}  // namespace

bool Ask::has_batch() const {
  return operation == LookupRequest::kOperation || operation == PushRequest::kOperation ||
         operation == ImportRequest::kOperation || operation == EraseRequest::kOperation;
}

std::uint64_t Ask::bytes() const {
  if (operation == ReadRowsRequest::kOperation) return keys.size() * sizeof(Key);
  if (!has_batch()) return 0;
  return batch.keys.size() * 8 + batch.offsets.size() * 4 + batch.weights.size() * 4 + WordsOf(*this) * 4;
}

std::string NameOf(Operation operation) {
  // By the operations' numbers.
  static const std::vector<std::string> kNames{"Lookup",  "Push",   "CreateTable", "DropTable", "Summarize",
                                               "SetRate", "Import", "Erase",       "ListKeys",  "ReadRows"};
  if (operation == AlterTableRequest::kOperation) return "Alter";
  return operation == RemoveRequest::kOperation ? "Remove" : kNames.at(static_cast<std::size_t>(operation));
}

std::string Ask::Describe() const {
  std::string text = NameOf(operation) + " of table " + std::to_string(Value(table));
  if (operation == CreateTableRequest::kOperation) text = "CreateTable " + options.name.str();
  if (operation == LookupRequest::kOperation) text += mode == LookupMode::kTrain ? " TRAIN" : " EVAL";
  if (operation == PushRequest::kOperation) {
    text += " session " + std::to_string(step.session) + " step " + std::to_string(step.number) + " part " +
            std::to_string(step.part) + " of " + std::to_string(step.parts) + ", epoch " +
            std::to_string(step.epoch) + ", body " + std::to_string(body) + ", place " +
            std::to_string(step.place) + " of " + std::to_string(step.tables);
  }
  if (bytes() > 0) text += ", " + std::to_string(bytes()) + " bytes";
  return text;
}

Request RequestOf(const Ask& ask, std::function<void(Reply)> done) {
  const auto of = [&](auto request) {
    request.caller = Caller(ask.caller);
    return Request(std::move(request));
  };
  if (ask.operation == LookupRequest::kOperation) {
    return of(LookupRequest{.table = ask.table,
                            .mode = ask.mode,
                            .batch = PartOf(ask),
                            .done = Fill(&Reply::pooled, std::move(done)),
                            .type = ask.type,
                            .joined = ask.joined,
                            .place = PlaceOf(ask)});
  }
  if (ask.operation == PushRequest::kOperation) {
    return of(PushRequest{.table = ask.table,
                          .step = ask.step,
                          .batch = PartOf(ask),
                          .done = Fill(&Reply::applied, std::move(done)),
                          .body = ask.body,
                          .learning_rate = ask.rate_of_step});
  }
  if (ask.operation == CreateTableRequest::kOperation)
    return of(CreateTableRequest{ask.options, Fill(&Reply::created, std::move(done))});
  if (ask.operation == DropTableRequest::kOperation)
    return of(DropTableRequest{ask.table, FillNone(std::move(done))});
  if (ask.operation == SummarizeRequest::kOperation)
    return of(SummarizeRequest{.table = ask.table,
                               .with_digest = ask.with_digest,
                               .done = Fill(&Reply::summary, std::move(done)),
                               .with_ages = ask.with_ages});
  if (ask.operation == SetLearningRateRequest::kOperation)
    return of(SetLearningRateRequest{ask.table, ask.learning_rate, FillNone(std::move(done))});
  if (ask.operation == AlterTableRequest::kOperation)
    return of(AlterTableRequest{ask.table, ask.alteration, Fill(&Reply::altered, std::move(done))});
  if (ask.operation == ImportRequest::kOperation) {
    return of(
        ImportRequest{ask.table, PartOf(ask), ask.with_state, ask.table_steps, FillNone(std::move(done))});
  }
  if (ask.operation == EraseRequest::kOperation)
    return of(EraseRequest{ask.table, PartOf(ask), Fill(&Reply::number, std::move(done))});
  if (ask.operation == RemoveRequest::kOperation) {
    return of(
        RemoveRequest{ask.table, ask.remove.which, ask.remove.number, Fill(&Reply::number, std::move(done))});
  }
  if (ask.operation == ListKeysRequest::kOperation)
    return of(ListKeysRequest{ask.table, Fill(&Reply::keys, std::move(done))});
  return of(
      ReadRowsRequest{.table = ask.table, .keys = ask.keys, .done = Fill(&Reply::rows, std::move(done))});
}

bool IsAnswerOf(const Ask& ask, std::span<const float> numbers, const PooledValues& pooled) {
  std::vector<std::byte> bytes(numbers.size() * BytesOf(ask.type));
  Narrow(numbers, ask.type, bytes.data());
  const std::span found(static_cast<const std::byte*>(pooled.values.get()), pooled.bytes());
  return pooled.type == ask.type && std::ranges::equal(found, bytes);
}

bool IsOf(const Proposal& proposal, const Ask& ask) {
  if (proposal.operation != ask.operation) return false;
  if (ask.operation == CreateTableRequest::kOperation) return true;
  if (proposal.table != ask.table) return false;
  if (ask.operation == LookupRequest::kOperation && proposal.joined != ask.joined) return false;
  if (ask.operation == PushRequest::kOperation && (proposal.step != ask.step || proposal.body != ask.body ||
                                                   proposal.learning_rate != ask.rate_of_step)) {
    return false;
  }
  return !ask.has_batch() || (proposal.samples == ask.samples && proposal.keys == ask.batch.keys.size() &&
                              proposal.weighted == !ask.batch.weights.empty());
}

std::vector<std::uint64_t> KeysIn(const test::Batch& batch) {
  std::vector<std::uint64_t> keys;
  for (const Key key : batch.keys) keys.push_back(Value(key));
  return keys;
}

test::Batch Joined(std::span<const Ask* const> parts, std::vector<float>& gradients) {
  test::Batch all;
  const bool weighted =
      std::ranges::any_of(parts, [](const Ask* part) { return !part->batch.weights.empty(); });
  for (const Ask* part : parts) {
    const test::Batch& batch = part->batch;
    const auto first = static_cast<std::uint32_t>(all.keys.size());
    all.keys.insert(all.keys.end(), batch.keys.begin(), batch.keys.end());
    for (std::uint32_t b = 1; b <= batch.bags(); ++b) all.offsets.push_back(first + batch.offsets[b]);
    for (std::uint32_t i = 0; weighted && i < batch.keys.size(); ++i) all.weights.push_back(batch.weight(i));
    gradients.insert(gradients.end(), part->values.begin(), part->values.end());
  }
  return all;
}

test::Batch DrawBatch(test::Random& random, const TableOptions& options, std::uint32_t samples,
                      std::uint64_t distinct_keys) {
  test::Batch batch;
  for (std::uint32_t b = 0; b < samples * options.slots; ++b) {
    std::vector<std::uint64_t> bag(options.combiner == Combiner::kNone ? 1 : random.Below(4));
    for (std::uint64_t& key : bag) key = random.Below(distinct_keys);
    batch.AddBag(bag);
  }
  return batch;
}

std::vector<std::uint64_t> DrawKeys(test::Random& random, std::uint64_t distinct_keys) {
  std::vector<std::uint64_t> keys(random.Below(8));
  for (std::uint64_t& key : keys) key = random.Below(distinct_keys);
  return keys;
}

std::vector<float> DrawValues(test::Random& random, std::size_t count, bool whole) {
  const std::int64_t most = whole ? 8 : 1000;
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t drawn = random.Below(static_cast<std::uint64_t>(2 * most + 1));
    value = static_cast<float>(static_cast<std::int64_t>(drawn) - most) * (whole ? 1.0F : 1e-3F);
  }
  return values;
}

EvictionOptions DrawEviction(test::Random& random) {
  EvictionOptions eviction;
  eviction.score = static_cast<ScoreKind>(1 + random.Below(3));
  if (CountsOccurrences(eviction.score) && random.OneIn(2)) eviction.half_life_steps = 1 + random.Below(6);
  eviction.at = random.OneIn(2) ? 1.0F : 0.9F;
  eviction.to = random.OneIn(2) ? 0.8F : 0.3F;
  return eviction;
}

AdmissionOptions DrawAdmission(test::Random& random) {
  AdmissionOptions admission;
  admission.absent = random.OneIn(2) ? AbsentRows::kInitial : AbsentRows::kZeros;
  admission.kind = random.OneIn(3) ? AdmissionKind::kProbability : AdmissionKind::kFrequency;
  admission.probability = random.OneIn(2) ? 0.5F : 0.2F;
  if (admission.kind == AdmissionKind::kProbability) return admission;
  admission.threshold = 1 + random.Below(6);
  admission.max_keys = random.OneIn(2) ? 0 : 8 + random.Below(30);
  if (admission.max_keys % 2 == 1) {
    admission.counter = CounterKind::kBloom;
    admission.counter_mib = 1 + admission.max_keys / 2 % 2;
    admission.max_keys = 0;
  }
  return admission;
}

void ChooseRowType(TableOptions& options) {
  const std::uint64_t seed = options.initializer.seed;
  options.row_dtype = static_cast<DataType>(seed % 3);
  if (options.row_dtype != DataType::kFloat32 && seed / 3 % 3 == 0) options.rounding = Rounding::kNearest;
}

TableAlteration DrawAlteration(std::uint64_t seed, const TableOptions& options, bool may_expire) {
  test::Random random(seed * 0x9E3779B97F4A7C15 + 3);
  TableAlteration alteration;
  if (random.OneIn(2)) {
    alteration.max_rows = random.OneOf(std::vector<std::uint64_t>{10, 20, 40, 1000, options.max_rows,
                                                                  options.max_rows + 1 + random.Below(9)});
  }
  if (random.OneIn(2)) alteration.eviction = random.OneIn(3) ? EvictionOptions{} : DrawEviction(random);
  if (may_expire && random.OneIn(3)) alteration.ttl_steps = random.OneIn(3) ? 0 : 1 + random.Below(30);
  if (random.OneIn(3) || alteration == TableAlteration{})
    alteration.admission = random.OneIn(3) ? AdmissionOptions{} : DrawAdmission(random);
  return alteration;
}

void DrawRemove(test::Random& random, const TableOptions& options, Ask& remove, bool may_sweep) {
  remove.operation = RemoveRequest::kOperation;
  remove.remove.which = static_cast<RemoveRequest::Which>(may_sweep ? random.Below(3) : 1 + random.Below(2));
  if (remove.remove.which == RemoveRequest::Which::kAllBut)
    remove.remove.number = random.Below(std::min<std::uint64_t>(options.max_rows, 40));
  if (remove.remove.which == RemoveRequest::Which::kBelow) remove.remove.number = random.Below(8);
}

void DrawImport(test::Random& random, const TableOptions& options, const std::vector<std::uint64_t>& keys,
                bool whole, Ask& import) {
  import.operation = ImportRequest::kOperation;
  import.batch = test::OneKeyABag(keys);
  import.with_state = random.OneIn(2);
  const std::uint32_t state = import.with_state ? FloatsBehindValues(options) : 0;
  import.values = DrawValues(random, keys.size() * (options.dim + state), whole);
  for (float& value : import.values) value = value < 0 ? -value : value;  // squares are never negative
  if (import.with_state && options.has_scores()) {
    const std::size_t columns = RecordFloats(options);
    for (std::size_t end = columns; end <= import.values.size(); end += columns) {
      std::uint64_t score = random.OneIn(4) ? kScoreOfNew : random.Below(30);
      if (CountsOccurrences(options.score()) && score != kScoreOfNew)
        score += random.Below(9) << OccurrenceScore::kStepBits;
      std::memcpy(&import.values[end - 2], &score, sizeof(score));
    }
  }
  if (random.OneIn(3)) import.table_steps = random.Below(20);
}

void RoundGradients(Ask& push) {
  std::vector<std::byte> narrow(push.values.size() * BytesOf(push.type));
  Narrow(push.values, push.type, narrow.data());
  Widen(narrow.data(), push.type, push.values);
}

void SetAnswerBytes(const TableOptions& options, Ask& lookup) {
  lookup.answer_bytes = std::uint64_t{lookup.samples} * options.slots * options.dim * BytesOf(lookup.type);
}

}  // namespace slotwise::sim
