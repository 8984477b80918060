#include "wire/table_options_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/status.h"
#include "wire/json.h"

namespace slotwise {
namespace {

v1::TableOptions Least() {
  v1::TableOptions wire;
  wire.set_name("ads");
  wire.set_dim(16);
  wire.mutable_optimizer()->set_learning_rate(0.5F);
  return wire;
}

TEST(TableOptionsFromProto, FillsTheDefaultsThatTheSchemaNames) {
  const auto options = FromProto(Least());
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->name.view(), "ads");
  EXPECT_EQ(options->dim, 16u);
  EXPECT_EQ(options->slots, 1u);
  EXPECT_EQ(options->combiner, Combiner::kSum);
  EXPECT_EQ(options->optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(options->optimizer.learning_rate, 0.5F);
  EXPECT_EQ(options->initializer, (InitializerOptions{.low = -0.05F, .high = 0.05F, .seed = 0}));
  EXPECT_EQ(options->initial_rows, 0u);
  EXPECT_EQ(options->max_rows, std::uint64_t{1} << 30);
  EXPECT_EQ(options->max_load, 0.5F);
}

TEST(TableOptionsFromProto, FillsEachOptimizersOwnDefaults) {
  v1::TableOptions wire = Least();
  wire.mutable_optimizer()->mutable_adagrad();
  auto options = FromProto(wire);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->optimizer.kind, OptimizerKind::kAdaGrad);
  EXPECT_EQ(options->optimizer.epsilon, 1e-10F);
  EXPECT_EQ(options->optimizer.initial_accumulator, 0.0F);

  wire.mutable_optimizer()->mutable_adam();
  options = FromProto(wire);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(options->optimizer.beta1, 0.9F);
  EXPECT_EQ(options->optimizer.beta2, 0.999F);
  EXPECT_EQ(options->optimizer.epsilon, 1e-8F);
}

TEST(TableOptionsFromProto, TakesAZeroThatIsWrittenOut) {
  v1::TableOptions wire = Least();
  wire.mutable_optimizer()->mutable_adam()->set_beta1(0);
  wire.mutable_initializer()->mutable_uniform();  // low and high are 0, so all values are the same
  const auto options = FromProto(wire);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->optimizer.beta1, 0.0F);
  EXPECT_EQ(options->initializer.low, 0.0F);
  EXPECT_EQ(options->initializer.high, 0.0F);
}

TEST(TableOptionsFromProto, TakesAdamsFlagsOneByOne) {
  v1::TableOptions wire = Least();
  wire.mutable_optimizer()->mutable_adam()->set_corrected_epsilon(true);
  const auto corrected = FromProto(wire);
  ASSERT_TRUE(corrected.ok());
  EXPECT_TRUE(corrected->optimizer.corrected_epsilon);
  EXPECT_FALSE(corrected->optimizer.decoupled_decay);
  wire.mutable_optimizer()->mutable_adam()->set_corrected_epsilon(false);
  wire.mutable_optimizer()->mutable_adam()->set_decoupled_decay(true);
  const auto decoupled = FromProto(wire);
  ASSERT_TRUE(decoupled.ok());
  EXPECT_FALSE(decoupled->optimizer.corrected_epsilon);
  EXPECT_TRUE(decoupled->optimizer.decoupled_decay);
}

TEST(TableOptionsToProto, IsTheInverse) {
  std::vector<std::function<void(v1::Optimizer&)>> optimizers{
      [](v1::Optimizer& o) { o.mutable_sgd(); },
      [](v1::Optimizer& o) { o.mutable_adagrad()->set_initial_accumulator(0.25F); },
      [](v1::Optimizer& o) { o.mutable_adam()->set_beta2(0.5F); },
      [](v1::Optimizer& o) { o.mutable_adam()->set_corrected_epsilon(true); },
      [](v1::Optimizer& o) { o.mutable_adam()->set_decoupled_decay(true); },
  };
  for (const auto& choose : optimizers) {
    v1::TableOptions wire = Least();
    choose(*wire.mutable_optimizer());
    wire.set_slots(26);
    wire.set_combiner(v1::COMBINER_MEAN);
    wire.mutable_initializer()->set_seed(~std::uint64_t{0});
    wire.mutable_initializer()->mutable_uniform()->set_low(-1);
    wire.set_initial_rows(10);
    wire.set_max_rows(20);
    wire.set_max_load(0.75F);
    const auto options = FromProto(wire);
    ASSERT_TRUE(options.ok()) << options.status().message();
    const auto again = FromProto(ToProto(*options));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, *options);
    EXPECT_EQ(ToProto(*again).SerializeAsString(), ToProto(*options).SerializeAsString());
  }
}

TEST(TableOptionsFromProto, EvictOnlyIfTheySaySo) {
  EXPECT_FALSE(test::Must(FromProto(Least())).has_scores());
  v1::TableOptions wire = Least();
  wire.mutable_eviction();
  const TableOptions options = test::Must(FromProto(wire));
  EXPECT_EQ(options.eviction, (EvictionOptions{.score = ScoreKind::kStep, .at = 1.0F, .to = 0.95F}));
  wire.mutable_eviction()->set_score(v1::SCORE_STEP);
  EXPECT_EQ(test::Must(FromProto(wire)), options);
  wire.mutable_eviction()->set_at(0.75F);
  wire.mutable_eviction()->set_to(0.5F);
  EXPECT_EQ(test::Must(FromProto(ToProto(test::Must(FromProto(wire))))).eviction,
            (EvictionOptions{.score = ScoreKind::kStep, .at = 0.75F, .to = 0.5F}));
  EXPECT_FALSE(ToProto(test::Must(FromProto(Least()))).has_eviction());
  EXPECT_EQ(FirstDifference(options, test::Must(FromProto(Least()))), "eviction.score is step, not none");
  EXPECT_EQ(FirstDifference(options, test::Must(FromProto(wire))), "eviction.at is 1, not 0.75");

  const auto message = [&](float at, float to) {
    wire.mutable_eviction()->set_at(at);
    wire.mutable_eviction()->set_to(to);
    return FromProto(wire).status().message();
  };
  EXPECT_EQ(message(0, 0.5F), "eviction.at is 0: must be above 0 and at most 1");
  EXPECT_EQ(message(1.5F, 0.5F), "eviction.at is 1.5: must be above 0 and at most 1");
  EXPECT_EQ(message(1, std::nanf("")), "eviction.to is nan: must be above 0 and at most 1");
  EXPECT_EQ(message(0.5F, 0.5F), "eviction.to is 0.5: must be below eviction.at, which is 0.5");
  wire.set_max_rows(3);
  EXPECT_EQ(message(0.25F, 0.125F), "eviction.at is 0.25: must leave room for a row, and max_rows is 3");
  wire.mutable_eviction()->set_score(static_cast<v1::Score>(7));
  EXPECT_EQ(message(1, 0.5F), "eviction.score is 7: must be 1 (step), 2 (lfu) or 3 (step_lfu)");
  wire.mutable_eviction()->set_score(v1::SCORE_STEP_LFU);
  EXPECT_EQ(message(1, 0.5F), "");
  wire.mutable_eviction()->set_half_life_steps(std::uint64_t{1} << 36);
  EXPECT_EQ(message(1, 0.5F), "eviction.half_life_steps is 68719476736: must be 0 to 68719476734");
  wire.mutable_eviction()->set_half_life_steps(9);
  EXPECT_EQ(FromProto(ToProto(test::Must(FromProto(wire))))->eviction.half_life_steps, 9U);
  wire.mutable_eviction()->clear_score();
  EXPECT_EQ(
      message(1, 0.5F),
      "eviction.half_life_steps is 9: must be 0, because a score by step counts no occurrences; lfu and "
      "step_lfu do");
}

// Of every optimizer and initializer, with its constants at other values than their defaults.
TEST(TableOptions, ComeBackFromMessagesAndFromJson) {
  for (const auto optimizer : EveryKind<OptimizerKind>()) {
    for (const auto initializer : EveryKind<InitializerKind>()) {
      TableOptions options = test::Must(FromProto(Least()));
      options.slots = 3;
      options.combiner = Combiner::kSqrtn;
      options.initial_rows = 5;
      options.max_rows = std::uint64_t{1} << 40;
      options.max_load = 0.7F;
      options.optimizer.kind = optimizer;
      options.optimizer.schedule = {.warmup_steps = 3,
                                    .decay_start = ~std::uint64_t{0},
                                    .decay_power = 0.3F,
                                    .end_learning_rate = 1e-7F};
      options.initializer.kind = initializer;
      options.eviction = {.score = ScoreKind::kStepLfu, .half_life_steps = 7, .at = 0.9F, .to = 0.3F};
      options.ttl_steps = 9;
      options.ttl_seconds = std::uint64_t{1} << 32;
      options.initializer.seed = ~std::uint64_t{0};
      float next = 0.1F;
      const auto set = [&next]<class T>(const Option<T>& option, T& value) {
        if constexpr (std::is_same_v<T, bool>) value = true;
        if constexpr (std::is_same_v<T, float>) value = next += 0.01F;
        EXPECT_NE(value, option.otherwise) << option.name;
      };
      ForEachConstant(options.optimizer, set);
      ForEachConstant(options.initializer, set);
      SCOPED_TRACE(ToJson(options));
      EXPECT_EQ(test::Must(FromProto(ToProto(options))), options);
      EXPECT_EQ(test::Must(TableOptionsFromJson(ToJson(options))), options);
    }
  }
}

TEST(TableOptionsFromJson, NamesWhatIsWrong) {
  const auto message = [](const std::string& text) { return TableOptionsFromJson(text).status().message(); };
  EXPECT_THAT(message("{"), testing::HasSubstr("Unexpected end"));
  EXPECT_THAT(message(R"({"name": "ads", "dimension": 3})"), testing::HasSubstr("dimension"));
  EXPECT_THAT(message(R"({"name": "ads", "dim": "x"})"), testing::HasSubstr("dim"));
  EXPECT_THAT(message(R"({"name": "ads", "optimizer": {"learning_rate": 1}})"),
              testing::HasSubstr("dim is 0"));
  EXPECT_THAT(message(R"({"name": "ads", "dim": 2, "optimizer": {"sgd": {}, "adam": {}}})"),
              testing::HasSubstr("adam"));
}

TEST(TableOptionsFromProto, RefusesWhatIsOutOfRangeByName) {
  struct Refusal {
    std::function<void(v1::TableOptions&)> spoil;
    const char* words;
  };
  const std::vector<Refusal> refusals{
      {[](auto& w) { w.set_name("a b"); }, "name is \"a b\""},
      {[](auto& w) { w.set_name(std::string(300, 'a')); }, "name is"},
      {[](auto& w) { w.set_dim(0); }, "dim is 0"},
      {[](auto& w) { w.set_slots(4097); }, "slots is 4097"},
      {[](auto& w) { w.set_combiner(static_cast<v1::Combiner>(9)); },
       "combiner is 9: must be 1 (sum), 2 (mean), 3 (sqrtn) or 4 (none)"},
      {[](auto& w) { w.clear_optimizer(); }, "optimizer.learning_rate is 0"},
      {[](auto& w) { w.mutable_optimizer()->mutable_adam()->set_beta1(1); }, "optimizer.beta1 is 1"},
      {[](auto& w) { w.mutable_initializer()->mutable_uniform()->set_low(2); }, "initializer.low is 2"},
      {[](auto& w) { w.set_max_rows(~std::uint64_t{0}); }, "max_rows is 18446744073709551615"},
  };
  for (const Refusal& refusal : refusals) {
    v1::TableOptions wire = Least();
    refusal.spoil(wire);
    const auto options = FromProto(wire);
    ASSERT_FALSE(options.ok()) << refusal.words;
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(options.status().message().find(refusal.words), std::string::npos)
        << options.status().message();
  }
}

TEST(TableAlterationFromProto, ComesBack) {
  const AdmissionOptions counts{
      .kind = AdmissionKind::kFrequency, .threshold = 3, .max_keys = 9, .absent = AbsentRows::kZeros};
  const AdmissionOptions filters{
      .kind = AdmissionKind::kFrequency, .threshold = 3, .counter = CounterKind::kBloom, .counter_mib = 64};
  const AdmissionOptions chance{.kind = AdmissionKind::kProbability, .probability = 0.25F};
  const EvictionOptions evicts{.score = ScoreKind::kStepLfu, .half_life_steps = 5, .at = 0.75F, .to = 0.5F};
  for (const TableAlteration& alteration :
       {TableAlteration{.max_rows = 7}, TableAlteration{.eviction = evicts}, TableAlteration{.ttl_steps = 0},
        TableAlteration{.ttl_seconds = 0}, TableAlteration{.ttl_seconds = 9},
        TableAlteration{.admission = counts}, TableAlteration{.admission = filters},
        TableAlteration{.admission = chance},
        TableAlteration{.max_rows = 0,
        .eviction = EvictionOptions{},
        .ttl_steps = 1,
        .ttl_seconds = 2,
        .admission = AdmissionOptions{}}}) {
    const v1::AlterTableRequest wire = ToProto("ads", alteration);
    EXPECT_EQ(wire.table(), "ads");
    v1::AlterTableRequest sent;
    ASSERT_TRUE(sent.ParseFromString(wire.SerializeAsString()));
    const auto read = FromProto(sent);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, alteration);
  }
}

TEST(TableAlterationFromProto, RefusesWhatCannotBeMeant) {
  const auto message = [](auto spoil) {
    v1::AlterTableRequest wire;
    wire.set_table("ads");
    spoil(wire);
    const auto read = FromProto(wire);
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    return read.status().message();
  };
  using testing::HasSubstr;
  EXPECT_THAT(message([](auto&) {}), HasSubstr("nothing is to be altered"));
  EXPECT_THAT(message([](auto& w) { w.set_no_eviction(false); }), HasSubstr("no_eviction is false"));
  EXPECT_THAT(message([](auto& w) { w.set_no_admission(false); }), HasSubstr("no_admission is false"));
  EXPECT_THAT(message([](auto& w) { w.mutable_admission(); }), HasSubstr("admission has no kind"));
  EXPECT_THAT(message([](auto& w) {
                w.mutable_admission()->mutable_frequency()->set_counter(static_cast<v1::Counter>(3));
              }),
              HasSubstr("admission.counter is 3: must be 1 (exact) or 2 (bloom)"));
  EXPECT_THAT(message([](auto& w) { w.mutable_eviction()->set_score(static_cast<v1::Score>(9)); }),
              HasSubstr("eviction.score is 9"));
}

}  // namespace
}  // namespace slotwise
