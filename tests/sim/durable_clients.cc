#include "tests/sim/durable_clients.h"

#include <algorithm>
#include <iterator>

namespace slotwise::sim {

constexpr std::uint64_t kDistinctKeys = 40;

void DurableClients::Know(const std::vector<ObservedTable>& tables) {
  tables_.clear();
  for (const ObservedTable& table : tables) tables_[table.name] = {table.id, table.options};
  // What was under way with the life before is lost to its sender.
  to_come_.clear();
}

void DurableClients::Hear(const Op& op, const Reply& reply) {
  if (op.operation == CreateTableRequest::kOperation)
    tables_[op.names[0]] = {reply.created.id, reply.created.options};
  const auto known = tables_.find(op.names[0]);
  if (op.operation == AlterTableRequest::kOperation && known != tables_.end() &&
      known->second.first == op.parts[0].table)
    known->second.second = reply.altered.options;
}

std::size_t DurableClients::Add(Op op) {
  op.told.resize(op.parts.size());
  history_.ops().push_back(std::move(op));
  return history_.ops().size() - 1;
}

DurableClients::Message DurableClients::Next() {
  if (tables_.empty() || random_.OneIn(15)) {
    Ask create;
    create.operation = CreateTableRequest::kOperation;
    create.options = random_.OneOf(plan_.tables);
    return {Add({.operation = create.operation, .parts = {create}, .names = {create.options.name.str()}}), 0};
  }
  return random_.Below(100) < 60 ? DrawPush() : Message{MakeOther(), 0};
}

bool DurableClients::IsKnown(const Op& op) const {
  for (std::size_t p = 0; p < op.parts.size(); ++p) {
    const auto table = tables_.find(op.names[p]);
    if (table == tables_.end() || table->second.first != op.parts[p].table) return false;
  }
  return true;
}

// A part that is still to come, one that came before, or the first of a new step.
DurableClients::Message DurableClients::DrawPush() {
  if (!pushes_.empty() && random_.OneIn(3)) {
    const std::size_t back =
        random_.Below(random_.OneIn(4) ? pushes_.size() : std::min<std::size_t>(pushes_.size(), 8));
    const std::size_t op = pushes_[pushes_.size() - 1 - back];
    if (IsKnown(history_.ops()[op])) {
      // A trainer that heard nothing sends the whole step again.
      const std::size_t parts = history_.ops()[op].parts.size();
      if (random_.OneIn(2)) {
        for (std::size_t p = 0; p < parts; ++p) to_come_.push_back({op, p});
      }
      return {op, random_.Below(parts)};
    }
  }
  if (to_come_.empty() || random_.OneIn(3)) {
    const std::size_t op = MakePush();
    pushes_.push_back(op);
    for (std::size_t p = 0; p < history_.ops()[op].parts.size(); ++p) {
      if (!random_.OneIn(40)) to_come_.push_back({op, p});  // else it never comes
    }
    if (to_come_.empty()) to_come_.push_back({op, 0});
  }
  std::swap(to_come_.front(), to_come_[random_.Below(to_come_.size())]);
  const Message message = to_come_.front();
  to_come_.pop_front();
  return message;
}

std::size_t DurableClients::MakePush() {
  std::vector<std::pair<std::string, Table>> tables(tables_.begin(), tables_.end());
  random_.Shuffle(tables);
  tables.resize(random_.OneIn(2) ? 1 + random_.Below(tables.size()) : 1);
  const auto parts = static_cast<std::uint32_t>(random_.OneIn(2) ? 1 : 1 + random_.Below(3));
  const std::uint64_t session = 1 + random_.Below(3);
  Op op{.operation = PushRequest::kOperation};
  for (std::uint32_t place = 0; place < tables.size(); ++place) {
    std::optional<float> rate;
    const std::uint64_t turn = (history_.ops().size() + place) % 6;
    if (turn < 3 && tables[place].second.second.optimizer.schedule == ScheduleOptions{})
      rate = static_cast<float>(1 + turn) * (plan_.whole_numbers ? 1.0F : 0.01F);
    for (std::uint32_t p = 0; p < parts; ++p) {
      Ask ask = DrawPart(tables[place].second);
      // No two operations have a number in common.
      ask.step = {
          session, history_.ops().size() + 1, p, parts, 1, place, static_cast<std::uint32_t>(tables.size())};
      ask.rate_of_step = rate;
      op.names.push_back(tables[place].first);
      op.parts.push_back(std::move(ask));
    }
  }
  return Add(std::move(op));
}

Ask DurableClients::DrawPart(const Table& table) {
  const TableOptions& options = table.second;
  Ask ask;
  ask.operation = PushRequest::kOperation;
  ask.table = table.first;
  ask.body = static_cast<std::uint32_t>(random_.Below(1000));
  ask.samples = static_cast<std::uint32_t>(random_.OneIn(30) ? 40 : random_.Below(4));
  ask.batch = DrawBatch(random_, options, ask.samples, kDistinctKeys);
  if (!plan_.whole_numbers && random_.OneIn(4)) test::AddRandomWeights(random_, ask.batch);
  ask.values =
      DrawValues(random_, std::size_t{ask.samples} * options.slots * options.dim, plan_.whole_numbers);
  if (random_.OneIn(3)) ask.type = random_.OneIn(2) ? DataType::kFloat16 : DataType::kBFloat16;
  RoundGradients(ask);
  return ask;
}

std::size_t DurableClients::MakeOther() {
  const auto& [name, table] =
      *std::next(tables_.begin(), static_cast<std::ptrdiff_t>(random_.Below(tables_.size())));
  const TableOptions& options = table.second;
  Ask ask;
  ask.table = table.first;
  const std::uint64_t kind = random_.Below(100);
  if (kind < 35) {
    ask.operation = LookupRequest::kOperation;
    ask.samples = static_cast<std::uint32_t>(random_.Below(4));
    ask.batch = DrawBatch(random_, options, ask.samples, kDistinctKeys);
    SetAnswerBytes(options, ask);
  } else if (kind < 80) {
    const std::vector<std::uint64_t> keys = DrawKeys(random_, kDistinctKeys);
    ask.samples = static_cast<std::uint32_t>(keys.size());
    if (kind < 55) {
      DrawImport(random_, options, keys, plan_.whole_numbers, ask);
    } else {
      ask.operation = EraseRequest::kOperation;
      ask.batch = test::OneKeyABag(keys);
    }
  } else if (kind < 86 && options.has_scores()) {
    DrawRemove(random_, options, ask, options.expires());  // a refusal would be taken for the disk's
  } else if (kind < 94) {
    ask.operation = SetLearningRateRequest::kOperation;
    const std::uint64_t rate = 1 + random_.Below(3);
    ask.learning_rate = static_cast<float>(rate) * (plan_.whole_numbers ? 1.0F : 0.01F);
    if (rate > 1) {
      ask.operation = AlterTableRequest::kOperation;
      // A sweep has no caller who hears whether the disk refused it.
      ask.alteration =
          DrawAlteration(history_.ops().size() * 7 + rate, options, plan_.tables[0].ttl_steps > 0);
    }
  } else {
    ask.operation = DropTableRequest::kOperation;
  }
  Op op{.operation = ask.operation, .parts = {std::move(ask)}, .names = {name}};
  if (op.operation == DropTableRequest::kOperation) tables_.erase(op.names[0]);
  return Add(std::move(op));
}

}  // namespace slotwise::sim
