// RunningEngine: a test's engine on its own thread, with calls that wait for their answers.
//
// Thread-safety: as the engine's. The constructors and destructors of both classes are collective.
#ifndef SLOTWISE_TESTS_ENGINE_RUNNING_ENGINE_H_
#define SLOTWISE_TESTS_ENGINE_RUNNING_ENGINE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/engine.h"
#include "server/engine/operations/checkpoint_requests.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/erase_rows.h"
#include "server/engine/operations/import_rows.h"
#include "server/engine/operations/list_evicted.h"
#include "server/engine/operations/list_keys.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/read_rows.h"
#include "server/engine/operations/remove_rows.h"
#include "server/engine/operations/set_learning_rate.h"
#include "server/engine/operations/summarize.h"
#include "server/engine/output_distributor.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {

struct Bags {
  std::uint32_t samples;
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> offsets;
  std::vector<float> weights = {};
};

template <class T>
BatchArray<T> ArrayOf(const std::vector<T>& values) {
  BatchArray<T> array(values.size());
  std::ranges::copy(values, array.data());
  return array;
}

inline BatchPart PartOf(const Bags& bags, const std::vector<float>& values = {}) {
  BatchPart part;
  part.samples = bags.samples;
  part.keys = BatchArray<Key>(bags.keys.size());
  std::ranges::transform(bags.keys, part.keys.data(), [](std::uint64_t key) { return Key{key}; });
  part.offsets = ArrayOf(bags.offsets);
  part.weights = ArrayOf(bags.weights);
  part.values = ArrayOf(values);
  return part;
}

// Makes bags of one key each, for one slot.
inline Bags UnitBags(const std::vector<std::uint64_t>& keys) {
  Bags bags{static_cast<std::uint32_t>(keys.size()), keys, {0}};
  for (std::uint32_t i = 1; i <= keys.size(); ++i) bags.offsets.push_back(i);
  return bags;
}

// The place where engines run one after another. It is kept because NCCL takes a second to connect ranks.
struct EnginePlace {
  EnginePlace(std::unique_ptr<Collective> ranks, std::unique_ptr<Device> of_rank)
      : collective(std::move(ranks)),
        device(std::move(of_rank)),
        exchanges(std::move(*Exchanges::Make(*device, *collective))),
        costs(MeasureDistribution(*device, *collective, exchanges.bags())) {}

  const std::unique_ptr<Collective> collective;
  const std::unique_ptr<Device> device;
  const Exchanges exchanges;
  const DistributionCosts costs;
};

class RunningEngine {
 public:
  // `collective` is the engine's own, of the place's ranks. Recovers first unless `durability` is null.
  RunningEngine(const EnginePlace& place, std::unique_ptr<Collective> collective, EngineOptions options = {},
                const DurabilityOptions* durability = nullptr, EngineObserver* observer = nullptr,
                Clock& clock = SystemClock())
      : collective_(std::move(collective)),
        engine_(*place.device, *collective_, place.exchanges, kTestSecret, With(place.costs, options), clock,
                observer),
        recovered_(durability != nullptr ? engine_.Recover(*durability) : Recovered()),
        thread_([this] { engine_.Run(); }) {}
  ~RunningEngine() {
    engine_.RequestStop();
    thread_.join();
  }

  Engine& engine() { return engine_; }
  Collective& collective() { return *collective_; }
  const Result<Recovered>& recovered() const { return recovered_; }

  // All ranks may create the same table at once; one of them makes it.
  TableId Create(const TableOptions& options) {
    const auto created = Ask<CreatedTable>([&](auto done) {
      engine_.Submit(CreateTableRequest{options, done});
    });
    EXPECT_TRUE(created.ok()) << created.status().message();
    return created->id;
  }
  Result<std::vector<float>> Lookup(TableId table, const Bags& bags, LookupMode mode = LookupMode::kTrain) {
    return StartLookup(table, bags, mode).get();
  }
  std::future<Result<std::vector<float>>> StartLookup(TableId table, const Bags& bags,
                                                      LookupMode mode = LookupMode::kTrain) {
    return Start<std::vector<float>>([&](auto done) {
      engine_.Submit(
          LookupRequest{table, mode, PartOf(bags), [done](const Result<PooledValues>& pooled) {
                          if (!pooled.ok()) return done(pooled.status());
                          done(std::vector<float>(pooled->floats().begin(), pooled->floats().end()));
                        }});
    });
  }
  std::future<Result<std::uint64_t>> StartPush(TableId table, StepId step, const Bags& bags,
                                               const std::vector<float>& gradients) {
    return Start<std::uint64_t>([&](auto done) {
      engine_.Submit(
          PushRequest{table, step, PartOf(bags, gradients), [done](const Result<AppliedStep>& applied) {
                        if (!applied.ok()) return done(applied.status());
                        done(applied->table_step);
                      }});
    });
  }
  Result<std::uint64_t> Push(TableId table, StepId step, const Bags& bags,
                             const std::vector<float>& gradients) {
    return StartPush(table, step, bags, gradients).get();
  }
  TableSummary Summarize(TableId table, bool with_ages = false) {
    return *Ask<TableSummary>([&](auto done) {
      engine_.Submit(
          SummarizeRequest{.table = table, .with_digest = true, .done = done, .with_ages = with_ages});
    });
  }
  // REQUIRES: the table's dim is 4.
  Status Import(TableId table, const std::vector<std::uint64_t>& keys, const std::vector<float>& records,
                std::uint64_t table_steps = 0, std::uint64_t generation = 0) {
    auto answer = std::make_shared<std::promise<Status>>();
    const bool with_state = records.size() > keys.size() * 4;
    engine_.Submit(ImportRequest{.table = table,
                                 .batch = PartOf(UnitBags(keys), records),
                                 .with_state = with_state,
                                 .table_steps = table_steps,
                                 .done = [answer](const Status& status) { answer->set_value(status); },
                                 .generation = generation});
    return answer->get_future().get();
  }
  std::uint64_t Erase(TableId table, const std::vector<std::uint64_t>& keys) {
    return *Ask<std::uint64_t>([&](auto done) {
      engine_.Submit(EraseRequest{table, PartOf(UnitBags(keys)), done});
    });
  }
  Result<std::uint64_t> Remove(TableId table, RemoveRequest::Which which, std::uint64_t number = 0) {
    return Ask<std::uint64_t>([&](auto done) { engine_.Submit(RemoveRequest{table, which, number, done}); });
  }
  // A page of the keys that went.
  EvictedPage ListEvicted(TableId table, std::uint64_t after_round, std::uint64_t keys_seen = 0,
                          std::uint64_t through_round = 0) {
    return *Ask<EvictedPage>([&](auto done) {
      engine_.Submit(ListEvictedRequest{table, after_round, keys_seen, through_round, done});
    });
  }
  std::vector<Key> ListKeys(TableId table) {
    return *Ask<std::vector<Key>>([&](auto done) { engine_.Submit(ListKeysRequest{table, done}); });
  }
  RowRecords ReadRows(TableId table, const std::vector<Key>& keys) {
    return *Ask<RowRecords>([&](auto done) { engine_.Submit(ReadRowsRequest{table, keys, done}); });
  }
  void SetLearningRate(TableId table, float rate) {
    auto answer = std::make_shared<std::promise<Status>>();
    engine_.Submit(
        SetLearningRateRequest{table, rate, [answer](const Status& status) { answer->set_value(status); }});
    EXPECT_TRUE(answer->get_future().get().ok());
  }
  Result<SavedCheckpoint> Save() {
    return Ask<SavedCheckpoint>(
        [&](auto done) { engine_.Submit(SaveCheckpointRequest{.done = done, .caller = {}}); });
  }
  Result<SavedCheckpoint> Load(const std::string& id) {
    return Ask<SavedCheckpoint>(
        [&](auto done) { engine_.Submit(LoadCheckpointRequest{.id = id, .done = done, .caller = {}}); });
  }
  Status Drop(TableId table) {
    auto answer = std::make_shared<std::promise<Status>>();
    engine_.Submit(DropTableRequest{table, [answer](const Status& status) { answer->set_value(status); }});
    return answer->get_future().get();
  }

 private:
  template <class T, class Submit>
  std::future<Result<T>> Start(Submit submit) {
    auto answer = std::make_shared<std::promise<Result<T>>>();
    submit([answer](const Result<T>& result) { answer->set_value(result); });
    return answer->get_future();
  }
  template <class T, class Submit>
  Result<T> Ask(Submit submit) {
    return Start<T>(submit).get();
  }

  static EngineOptions With(const DistributionCosts& costs, EngineOptions options) {
    options.distribution.costs = costs;
    return options;
  }

  std::unique_ptr<Collective> collective_;
  Engine engine_;
  const Result<Recovered> recovered_;
  std::thread thread_;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_ENGINE_RUNNING_ENGINE_H_
