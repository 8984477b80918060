#include "tests/sim/clients.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

#include "tests/sim/call_bytes.h"

namespace slotwise::sim {
namespace {

// Gives a part a rate of its own, which is part of its body.
void SetRate(Ask& push, float rate) {
  push.rate_of_step = rate;
  push.body = HashOfBody(push);
}

}  // namespace

std::vector<Ask> Clients::Next() {
  if (done()) return {};
  ++asked_;
  std::vector<Ask> message = DrawMessage();
  const std::string caller = "client " + std::to_string(random_.Below(3));
  for (Ask& ask : message) ask.caller = caller;
  return message;
}

std::vector<Ask> Clients::DrawMessage() {
  if (tables_.empty() || random_.OneIn(25)) {
    Ask create;
    create.operation = CreateTableRequest::kOperation;
    create.options = random_.OneOf(plan_.tables);
    return {create};
  }
  if (random_.OneIn(8)) return DrawGroup();
  return {DrawAsk()};
}

Clients::Table& Clients::DrawTable() {
  return *std::next(tables_.begin(), static_cast<std::ptrdiff_t>(random_.Below(tables_.size())));
}

DataType Clients::DrawType() {
  return random_.OneOf(
      std::vector{DataType::kFloat32, DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16});
}

Ask Clients::DrawAsk() {
  if (random_.Below(100) < plan_.other_percent) return random_.OneIn(2) ? DrawRows() : DrawOperator();
  return random_.Below(100) < 45 ? DrawLookup() : DrawPart();
}

// Lookups or parts, of one client and to one rank, which the request queue takes together.
std::vector<Ask> Clients::DrawGroup() {
  std::vector<Ask> group;
  if (random_.OneIn(3)) {  // a step, mostly with all its parts
    pushes_.push_back(DrawPush());
    Push& push = pushes_.back();
    for (const std::uint32_t part : push.to_come) group.push_back(push.parts[part]);
    push.to_come.clear();
    return group;
  }
  const std::size_t size = 2 + random_.Below(3);
  const bool lookups = random_.OneIn(2);
  const bool joined = random_.OneIn(2);
  while (group.size() < size) {
    group.push_back(lookups ? DrawLookup() : DrawPart());
    group.back().joined = lookups && joined;
  }
  return group;
}

Ask Clients::DrawLookup() {
  const auto& [id, options] = DrawTable();
  Ask ask;
  ask.operation = LookupRequest::kOperation;
  ask.table = id;
  ask.mode = random_.Below(100) < plan_.eval_percent ? LookupMode::kEval : LookupMode::kTrain;
  ask.samples = static_cast<std::uint32_t>(random_.OneIn(30) ? 100 : random_.Below(4));
  const bool weighted = random_.Below(100) < plan_.weighted_percent;
  ask.batch = DrawBatch(random_, options, ask.samples, plan_.distinct_keys);
  if (weighted) test::AddRandomWeights(random_, ask.batch);
  ask.type = DrawType();
  SetAnswerBytes(options, ask);
  ask.placed = random_.OneIn(3);
  return ask;
}

// A part that is still to come, one that came before, or the first of a new step.
Ask Clients::DrawPart() {
  if (!pushes_.empty() && random_.OneIn(3)) {  // again, mostly of a recent step
    const std::size_t back =
        random_.Below(random_.OneIn(4) ? pushes_.size() : std::min<std::size_t>(pushes_.size(), 4));
    Ask again = random_.OneOf(pushes_[pushes_.size() - 1 - back].parts);
    if (random_.OneIn(30)) {
      ++again.step.parts;
    }
    if (random_.OneIn(20)) again.body ^= 1;
    if (again.rate_of_step && random_.OneIn(20)) SetRate(again, 0.5F);
    if (again.step.tables > 1 && random_.OneIn(10))
      again.step.place = (again.step.place + 1) % again.step.tables;
    if (again.step.tables > 1 && random_.OneIn(20)) ++again.step.tables;
    return again;
  }
  std::vector<Push*> unsent;
  for (Push& push : pushes_) {
    if (!push.to_come.empty()) unsent.push_back(&push);
  }
  if (unsent.empty() || random_.OneIn(3)) {
    pushes_.push_back(DrawPush());
    unsent = {&pushes_.back()};
  }
  Push& push = *random_.OneOf(unsent);
  const std::uint32_t part = push.to_come.back();
  push.to_come.pop_back();
  return push.parts[part];
}

// Different tables, mostly one.
std::vector<std::pair<TableId, TableOptions>> Clients::DrawTables() {
  std::vector<std::pair<TableId, TableOptions>> tables(tables_.begin(), tables_.end());
  random_.Shuffle(tables);
  tables.resize(random_.OneIn(3) ? 1 + random_.Below(tables.size()) : 1);
  return tables;
}

Clients::Push Clients::DrawPush() {
  const auto tables = DrawTables();
  Push push;
  const std::uint64_t session = 1 + random_.Below(3);
  const TableId id = tables.size() > 1 ? TableId{0} : tables[0].first;
  // Mostly the first epoch's; sometimes none, a later one that is there once sessions were forgotten, or one
  // that no server has said.
  const std::uint64_t epoch = random_.OneIn(3) ? random_.Below(random_.OneIn(10) ? 100 : 4) : 1;
  std::uint64_t& newest = newest_[{id, session}];
  // Mostly the next number; sometimes far ahead, or at the edge of the numbers that are remembered.
  std::uint64_t number = newest + 1;
  if (random_.OneIn(12)) number = newest + 4000 + random_.Below(200);
  if (random_.OneIn(8) && newest > 4200) number = newest - 4098 + random_.Below(5);
  const bool repeated = std::ranges::any_of(pushes_, [&](const Push& other) {
    return KeyOf(other.parts[0].table, other.parts[0].step) == StepKey{id, session, number};
  });
  if (repeated) number = newest + 1;
  newest = std::max(newest, number);

  const auto parts = static_cast<std::uint32_t>(random_.OneIn(2) ? 1 : 1 + random_.Below(4));
  const bool weighted = random_.Below(100) < plan_.weighted_percent;
  const std::optional<float> rate =
      random_.OneIn(3) ? std::optional(0.01F * static_cast<float>(1 + random_.Below(9))) : std::nullopt;
  for (std::uint32_t place = 0; place < tables.size(); ++place) {
    for (std::uint32_t p = 0; p < parts; ++p) {
      if (!random_.OneIn(15))
        push.to_come.push_back(static_cast<std::uint32_t>(push.parts.size()));  // else it never comes
      Ask ask = DrawPartOf(tables[place], weighted);
      ask.step = {session, number, p, parts, epoch, place, static_cast<std::uint32_t>(tables.size())};
      const bool scheduled = tables[place].second.optimizer.schedule != ScheduleOptions{};
      // Sometimes a part has a rate that the others have not.
      const float of_part = random_.OneIn(30) ? 0.25F : rate.value_or(0.25F);
      if (!scheduled && (rate.has_value() || random_.OneIn(60))) SetRate(ask, of_part);
      push.parts.push_back(std::move(ask));
    }
  }
  if (push.to_come.empty()) push.to_come.push_back(0);
  if (random_.OneIn(2)) random_.Shuffle(push.to_come);
  return push;
}

Ask Clients::DrawPartOf(const std::pair<TableId, TableOptions>& table, bool weighted) {
  const TableOptions& options = table.second;
  Ask ask;
  ask.operation = PushRequest::kOperation;
  ask.table = table.first;
  ask.samples = static_cast<std::uint32_t>(random_.OneIn(40) ? 60 : random_.Below(4));
  const bool has_weights = weighted && random_.OneIn(2);
  ask.batch = DrawBatch(random_, options, ask.samples, plan_.distinct_keys);
  if (has_weights) test::AddRandomWeights(random_, ask.batch);
  ask.values = DrawValues(random_, std::size_t{ask.samples} * options.slots * options.dim, false);
  ask.type = DrawType();
  RoundGradients(ask);
  ask.body = HashOfBody(ask);
  return ask;
}

Ask Clients::DrawRows() {
  const auto& [id, options] = DrawTable();
  Ask ask;
  ask.table = id;
  const std::vector<std::uint64_t> keys = DrawKeys(random_, plan_.distinct_keys);
  ask.samples = static_cast<std::uint32_t>(keys.size());
  switch (random_.Below(4)) {
    case 0:
      DrawImport(random_, options, keys, false, ask);
      return ask;
    case 1:
      ask.operation = EraseRequest::kOperation;
      ask.batch = test::OneKeyABag(keys);
      return ask;
    case 2:
      ask.operation = ListKeysRequest::kOperation;
      break;
    default:
      ask.operation = ReadRowsRequest::kOperation;
      for (const std::uint64_t key : keys) ask.keys.push_back(Key{key});
  }
  ask.samples = 0;
  return ask;
}

Ask Clients::DrawOperator() {
  Ask ask;
  ask.table = DrawTable().first;
  if (random_.OneIn(6)) {
    ask.operation = DropTableRequest::kOperation;
  } else if (random_.OneIn(5)) {
    DrawRemove(random_, tables_.at(ask.table), ask);
  } else if (random_.OneIn(4)) {
    ask.operation = SetLearningRateRequest::kOperation;
    const std::uint64_t hundredths = 1 + random_.Below(9);
    ask.learning_rate = 0.01F * static_cast<float>(hundredths);
    if (hundredths > 3) {
      ask.operation = AlterTableRequest::kOperation;
      ask.alteration = DrawAlteration(plan_.seed * 1000 + asked_, tables_.at(ask.table), true);
    }
  } else {
    ask.operation = SummarizeRequest::kOperation;
    ask.with_digest = !random_.OneIn(4);
    ask.with_ages = random_.OneIn(2);
  }
  return ask;
}

std::vector<Ask> Clients::LastLooks() {
  std::vector<Ask> looks;
  for (const auto& [id, options] : tables_) {
    Ask summary;
    summary.operation = SummarizeRequest::kOperation;
    summary.table = id;
    summary.with_digest = true;
    summary.with_ages = true;
    looks.push_back(summary);
  }
  return looks;
}

}  // namespace slotwise::sim
