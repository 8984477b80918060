#include "tests/sim/call_bytes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace slotwise::sim {
namespace {

std::uint64_t Padded(std::uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::uint64_t Mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

std::uint64_t HashOfWords(const std::vector<std::uint32_t>& words) {
  std::uint64_t sum = 0;
  for (std::size_t j = 0; 2 * j < words.size(); ++j) {
    const std::uint64_t high = 2 * j + 1 < words.size() ? words[2 * j + 1] : 0;
    const std::uint64_t pair = words[2 * j] + (high << 32) + (j + 1) * kGolden;
    sum += (pair % (std::uint64_t{1} << 32)) * (pair >> 32);
  }
  return Mixed(sum + Mixed(words.size()));
}

std::vector<std::uint32_t> WordsOf(const std::vector<float>& numbers) {
  std::vector<std::uint32_t> words;
  for (const float number : numbers) words.push_back(std::bit_cast<std::uint32_t>(number));
  return words;
}

void Append(std::vector<std::byte>& body, const void* from, std::size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(from);
  body.insert(body.end(), at, at + bytes);
  body.resize(Padded(body.size()));
}

std::vector<std::byte> GradientsOf(const Ask& ask) {
  std::vector<std::byte> bytes(ask.values.size() * BytesOf(ask.type));
  Narrow(ask.values, ask.type, bytes.data());
  return bytes;
}

std::uint64_t BytesOfMessage(const v1::DataArrays& arrays) {
  return Padded(arrays.keys()) + Padded(arrays.gradients()) + Padded(arrays.offsets()) +
         Padded(arrays.weights());
}

void AppendOffsets(std::vector<std::byte>& body, const v1::DataArrays& arrays,
                   std::span<const std::uint32_t> offsets) {
  if (arrays.offsets() == 0) return;
  if (!arrays.wide_offsets()) return Append(body, offsets.data(), offsets.size_bytes());
  const std::vector<std::uint64_t> wide(offsets.begin(), offsets.end());
  Append(body, wide.data(), wide.size() * sizeof(wide[0]));
}

v1::DataType WireType(DataType type) {
  if (type == DataType::kFloat16) return v1::DATA_TYPE_FLOAT16;
  return type == DataType::kBFloat16 ? v1::DATA_TYPE_BFLOAT16 : v1::DATA_TYPE_FLOAT32;
}

bool IsValid(const Ask& ask, bool has_offsets, const TableOptions& table) {
  const std::uint64_t bags = std::uint64_t{ask.samples} * table.slots;
  const auto& [keys, offsets, weights] = ask.batch;
  if (!has_offsets && keys.size() != bags) return false;
  if (offsets.size() != bags + 1 || offsets[0] != 0 || offsets[bags] != keys.size()) return false;
  for (std::size_t b = 0; b <= bags; ++b) {
    if (b < bags && offsets[b] > offsets[b + 1]) return false;
    if (table.combiner == Combiner::kNone && offsets[b] != b) return false;
  }
  if (!weights.empty() && weights.size() != keys.size()) return false;
  if (ask.operation == PushRequest::kOperation && ask.values.size() != bags * table.dim) return false;
  if (ask.rate_of_step && table.optimizer.schedule != ScheduleOptions{}) return false;
  const auto finite = [](float number) { return std::isfinite(number); };
  return std::ranges::all_of(weights, finite) && std::ranges::all_of(ask.values, finite);
}

// Whether two pushes of a call are the same part with other bodies, or a step has a table at two places.
bool NamesClash(std::span<const Ask> asks, std::span<const std::optional<TableInfo>> tables) {
  std::map<std::tuple<StepKey, std::uint32_t, std::uint32_t>, std::uint32_t> bodies;
  std::map<std::pair<StepKey, TableId>, std::uint32_t> places;
  for (std::size_t i = 0; i < asks.size(); ++i) {
    const StepId& step = asks[i].step;
    const StepKey key = KeyOf(tables[i]->id, step);
    const std::uint32_t hash = HashOfBody(asks[i]);
    if (places.try_emplace({key, tables[i]->id}, step.place).first->second != step.place) return true;
    if (bodies.try_emplace({key, step.place, step.part}, hash).first->second != hash) return true;
  }
  return false;
}

}  // namespace

std::uint32_t HashOfBody(const Ask& push) {
  std::vector<std::uint32_t> keys;
  for (const Key key : push.batch.keys) {
    keys.push_back(static_cast<std::uint32_t>(Value(key)));
    keys.push_back(static_cast<std::uint32_t>(Value(key) >> 32));
  }
  std::uint64_t hash = Mixed(push.samples);
  for (const std::uint64_t array :
       {HashOfWords(keys), HashOfWords(push.batch.offsets), HashOfWords(WordsOf(push.batch.weights)),
        HashOfWords(WordsOf(push.values))}) {
    hash = Mixed(hash + kGolden + array);
  }
  if (push.rate_of_step) hash = Mixed(hash + kGolden + std::bit_cast<std::uint32_t>(*push.rate_of_step));
  return static_cast<std::uint32_t>(hash);
}

v1::DataCall HeadOf(std::span<const Ask> asks, std::span<const std::string> names, bool many) {
  v1::DataCall head;
  head.set_timeout_ms(3'600'000);
  head.set_many(many);
  for (std::size_t i = 0; i < asks.size(); ++i) {
    const Ask& ask = asks[i];
    v1::DataArrays& arrays = *head.add_arrays();
    arrays.set_keys(ask.batch.keys.size() * 8);
    arrays.set_gradients(ask.operation == PushRequest::kOperation ? ask.values.size() * BytesOf(ask.type)
                                                                  : 0);
    arrays.set_offsets(ask.batch.offsets.size() * 4);
    arrays.set_weights(ask.batch.weights.size() * 4);
    if (ask.operation == LookupRequest::kOperation) {
      v1::LookupRequest& lookup = *head.add_lookups();
      lookup.set_table(names[i]);
      lookup.set_mode(ask.mode == LookupMode::kTrain ? v1::LOOKUP_MODE_TRAIN : v1::LOOKUP_MODE_EVAL);
      lookup.set_samples(ask.samples);
      lookup.set_data_type(WireType(ask.type));
      continue;
    }
    v1::PushRequest& push = *head.add_pushes();
    push.set_table(names[i]);
    push.set_samples(ask.samples);
    push.set_data_type(WireType(ask.type));
    if (ask.rate_of_step) push.set_learning_rate(*ask.rate_of_step);
    v1::StepId& step = *push.mutable_step();
    step.set_session(ask.step.session);
    step.set_number(ask.step.number);
    step.set_part(ask.step.part);
    step.set_parts(ask.step.parts);
    step.set_epoch(ask.step.epoch);
    step.set_place(ask.step.place);
    step.set_tables(ask.step.tables);
  }
  return head;
}

void LeaveOutOffsets(v1::DataCall& head, int message) { head.mutable_arrays(message)->set_offsets(0); }

void WidenOffsets(v1::DataCall& head, int message) {
  v1::DataArrays& arrays = *head.mutable_arrays(message);
  arrays.set_offsets(arrays.offsets() * 2);
  arrays.set_wide_offsets(true);
}

std::vector<std::byte> BodyOf(const v1::DataCall& head, std::span<const Ask> asks) {
  std::vector<std::byte> body;
  for (std::size_t i = 0; i < asks.size(); ++i) {
    const v1::DataArrays& arrays = head.arrays(static_cast<int>(i));
    const test::Batch& batch = asks[i].batch;
    const std::vector<std::byte> gradients = GradientsOf(asks[i]);
    Append(body, batch.keys.data(), arrays.keys());
    Append(body, gradients.data(), arrays.gradients());
    AppendOffsets(body, arrays, batch.offsets);
    Append(body, batch.weights.data(), arrays.weights());
  }
  return body;
}

std::span<const std::byte> ArraysIn(const v1::DataCall& head, int message, std::span<const std::byte> body) {
  std::uint64_t at = 0;
  for (int i = 0; i < message; ++i) at += BytesOfMessage(head.arrays(i));
  return body.subspan(at, BytesOfMessage(head.arrays(message)));
}

Ask AskIn(const v1::DataCall& head, int message, std::span<const std::byte> body, const Ask& ask) {
  const v1::DataArrays& arrays = head.arrays(message);
  std::span<const std::byte> rest = ArraysIn(head, message, body);
  const auto take = [&](auto& to, std::uint64_t bytes) {
    to.resize(bytes / sizeof(to[0]));
    if (bytes > 0) std::memcpy(to.data(), rest.data(), bytes);
    rest = rest.subspan(Padded(bytes));
  };
  Ask read = ask;
  take(read.batch.keys, arrays.keys());
  std::vector<std::byte> gradients;
  take(gradients, arrays.gradients());
  read.values.resize(gradients.size() / BytesOf(ask.type));
  Widen(gradients.data(), ask.type, read.values);
  if (arrays.wide_offsets()) {
    std::vector<std::uint64_t> wide;
    take(wide, arrays.offsets());
    read.batch.offsets.clear();
    constexpr std::uint64_t kMost = 0xFFFFFFFF;  // what does not fit becomes this
    for (const std::uint64_t offset : wide)
      read.batch.offsets.push_back(static_cast<std::uint32_t>(std::min(offset, kMost)));
  } else {
    take(read.batch.offsets, arrays.offsets());
  }
  take(read.batch.weights, arrays.weights());
  if (arrays.offsets() == 0) {
    for (std::uint32_t b = 0; b <= read.batch.keys.size(); ++b) read.batch.offsets.push_back(b);
  }
  if (ask.operation == PushRequest::kOperation) read.body = HashOfBody(read);
  return read;
}

StatusCode CodeOf(const v1::DataCall& head, std::span<const Ask> asks,
                  std::span<const std::optional<TableInfo>> tables) {
  for (std::size_t i = 0; i < asks.size(); ++i) {
    if (!tables[i]) return StatusCode::kNotFound;
    const bool has_offsets = head.arrays(static_cast<int>(i)).offsets() > 0;
    if (!IsValid(asks[i], has_offsets, tables[i]->options)) return StatusCode::kInvalidArgument;
  }
  const bool pushes = asks[0].operation == PushRequest::kOperation;
  return pushes && NamesClash(asks, tables) ? StatusCode::kInvalidArgument : StatusCode::kOk;
}

std::vector<std::byte> ArraysOf(const v1::DataCall& head, int message, const Request& request) {
  const v1::DataArrays& arrays = head.arrays(message);
  const BatchPart& batch = *request.batch();
  std::vector<std::byte> body;
  Append(body, batch.keys.data(), batch.keys.bytes());
  Append(body, batch.values.data(), std::min<std::uint64_t>(arrays.gradients(), batch.values.bytes()));
  AppendOffsets(body, arrays, batch.offsets.span());
  Append(body, batch.weights.data(), batch.weights.bytes());
  return body;
}

std::vector<ValuePlace> ValuePlaces(std::span<const Ask> asks) {
  std::vector<ValuePlace> places;
  std::uint64_t at = 0;
  for (const Ask& ask : asks) {
    places.push_back({at, ask.answer_bytes});
    at += Padded(ask.answer_bytes);
  }
  return places;
}

std::uint64_t BytesOfPlaces(std::span<const ValuePlace> places) {
  return places.empty() ? 0 : places.back().at + Padded(places.back().bytes);
}

}  // namespace slotwise::sim
