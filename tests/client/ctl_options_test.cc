// Flags and text files become a table's options, and errors name their place.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string_view>

#include "client/ctl/options.h"
#include "client/ctl/text_table.h"

namespace slotwise::ctl {
namespace {

using Set = std::function<void(v1::TableOptions&)>;

// Returns what the flag of an option sets.
Set Flag(std::string_view name, double value) {
  Set set;
  ForEachFlag([&]<class T>(const Option<T>& option, const auto& to) {
    if (option.name != name) return;
    set = [to, value](v1::TableOptions& options) { to(options, static_cast<T>(value)); };
  });
  return set;
}

TEST(OptionsOf, TakesFlagsAlone) {
  const auto options = OptionsOf({.name = "ads",
                                  .combiner = "mean",
                                  .optimizer = "adam { beta1: 0.5 }",
                                  .initializer = "normal { deviation: 2 }",
                                  .set = {Flag("dim", 16), Flag("slots", 3), Flag("learning_rate", 0.25),
                                          Flag("seed", 7), Flag("initial_rows", 8), Flag("max_rows", 9),
                                          Flag("max_load", 0.75), Flag("weight_decay", 0.5)}});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->name.view(), "ads");
  EXPECT_EQ(options->combiner, Combiner::kMean);
  EXPECT_EQ(options->optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(options->optimizer.beta1, 0.5F);
  EXPECT_EQ(options->optimizer.beta2, 0.999F);
  EXPECT_EQ(options->initializer.deviation, 2.0F);
  EXPECT_EQ(options->initializer.seed, 7u);
  EXPECT_EQ(options->max_rows, 9u);
  EXPECT_EQ(options->max_load, 0.75F);
  EXPECT_EQ(options->dim, 16u);
  EXPECT_EQ(options->optimizer.learning_rate, 0.25F);
  EXPECT_EQ(options->optimizer.weight_decay, 0.5F);
}

TEST(OptionsOf, LetsFlagsChangeWhatAFileSays) {
  const std::string path = testing::TempDir() + "slotwise_options_" + std::to_string(getpid()) + ".pbtxt";
  std::ofstream(path) << "name: 'ads' dim: 4\noptimizer { learning_rate: 0.5 adagrad { epsilon: 1e-3 } }\n";
  const auto options = OptionsOf({.file = path, .optimizer = "sgd", .set = {Flag("dim", 5)}});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->name.view(), "ads");
  EXPECT_EQ(options->dim, 5u);
  EXPECT_EQ(options->optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(options->optimizer.learning_rate, 0.5F);

  std::ofstream(path) << "dim: 4\nslts: 3\n";
  EXPECT_EQ(OptionsOf({.file = path}).status().message().find(path + ":2:"), 0u)
      << OptionsOf({.file = path}).status().message();
  std::remove(path.c_str());
}

TEST(OptionsOf, HasAnEvictionByItsScore) {
  const auto eviction = [](const std::string& text) {
    return OptionsOf({.name = "ads", .eviction = text, .set = {Flag("dim", 1), Flag("learning_rate", 1)}});
  };
  EXPECT_FALSE(eviction("")->has_scores());
  EXPECT_EQ(eviction("step")->eviction,
            (EvictionOptions{.score = ScoreKind::kStep, .at = 1.0F, .to = 0.95F}));
  EXPECT_EQ(eviction("step { at: 0.9 to: 0.5 }")->eviction,
            (EvictionOptions{.score = ScoreKind::kStep, .at = 0.9F, .to = 0.5F}));
  EXPECT_EQ(eviction("step_lfu { half_life_steps: 9 }")->eviction,
            (EvictionOptions{.score = ScoreKind::kStepLfu, .half_life_steps = 9}));
  EXPECT_EQ(eviction("lfu { score: SCORE_STEP }").status().message(),
            "--eviction: the text names two scores: lfu { score: SCORE_STEP }");
  EXPECT_EQ(eviction("lru").status().message(),
            "--eviction: there is no \"lru\": must be step, lfu or step_lfu");
  EXPECT_EQ(eviction("unspecified").status().message(),
            "--eviction: there is no \"unspecified\": must be step, lfu or step_lfu");
  EXPECT_EQ(eviction("step to: 0.9").status().message().find("--eviction:1:"), 0U);
  EXPECT_EQ(eviction("step { of: 1 }").status().message().find("--eviction:1:"), 0U);
  EXPECT_EQ(eviction("step { to: 2 }").status().message(), "eviction.to is 2: must be above 0 and at most 1");
}

TEST(OptionsOf, RefusesByTheFlagsName) {
  const auto message = [](const CreateFlags& flags) { return OptionsOf(flags).status().message(); };
  EXPECT_EQ(message({.name = "ads", .combiner = "max"}),
            "--combiner: there is no \"max\": must be sum, mean, sqrtn or none");
  const std::string optimizers =
      "must be sgd, adagrad, adam, momentum, nesterov, rowwise_adagrad, rmsprop or ftrl";
  EXPECT_EQ(message({.name = "ads", .optimizer = "lamb"}),
            "--optimizer: there is no \"lamb\": " + optimizers);
  EXPECT_EQ(message({.name = "ads", .optimizer = "lamb { beta: 1 }"}),
            "--optimizer: there is no \"lamb\": " + optimizers);
  EXPECT_EQ(message({.name = "ads", .optimizer = "{}"}), "--optimizer: there is no \"{}\": " + optimizers);
  EXPECT_EQ(message({.name = "ads", .initializer = "zeros"}),
            "--initializer: there is no \"zeros\": must be uniform, normal or constant");
  EXPECT_EQ(message({.name = "ads", .optimizer = "adam { beta3: 1 }"}).find("--optimizer:1:"), 0u);
  EXPECT_EQ(message({.name = "ads", .set = {Flag("dim", 0), Flag("learning_rate", 1)}}).find("dim is 0"), 0u);
}

// The last would count, and the user would not be told.
TEST(OptionsOf, RefusesTwoOfWhatThereIsOneOf) {
  const auto message = [](const CreateFlags& flags) { return OptionsOf(flags).status().message(); };
  const std::string two = message({.name = "ads", .optimizer = "adam {} sgd {}"});
  EXPECT_EQ(two.find("--optimizer:1:13: "), 0u) << two;
  EXPECT_NE(two.find("another member of oneof \"kind\""), std::string::npos) << two;
  EXPECT_NE(message({.name = "ads", .optimizer = "adam { beta1: 0.5 beta1: 0.6 }"}), "");
  EXPECT_NE(message({.name = "ads", .initializer = "normal {} uniform {}"}).find("another member of oneof"),
            std::string::npos);

  const std::string path = testing::TempDir() + "slotwise_twice_" + std::to_string(getpid()) + ".pbtxt";
  std::ofstream(path) << "dim: 4\noptimizer { learning_rate: 0.5 adam {} sgd {} }\n";
  const std::string filed = message({.name = "ads", .file = path});
  EXPECT_EQ(filed.find(path + ":2:"), 0u) << filed;
  EXPECT_NE(filed.find("another member of oneof"), std::string::npos) << filed;
  std::ofstream(path) << "dim: 4\ndim: 5\noptimizer { learning_rate: 0.5 }\n";
  EXPECT_EQ(message({.name = "ads", .file = path}).find(path + ":2:"), 0u);
  std::remove(path.c_str());
}

TEST(TextTable, AlignsItsColumns) {
  TextTable table({"NAME", ">ROWS", "KIND"});
  table.Add({"ads", "5", "cpu"});
  table.Add({"longer", "12,345", "x"});
  EXPECT_EQ(table.Text(), "NAME      ROWS  KIND\nads          5  cpu\nlonger  12,345  x\n");
  EXPECT_EQ(CountText(0) + " " + CountText(999) + " " + CountText(1234567), "0 999 1,234,567");
  EXPECT_EQ(BytesText(100) + ", " + BytesText(1536) + ", " + BytesText(std::uint64_t{3} << 40),
            "100 B, 1.5 KiB, 3.0 TiB");
}

}  // namespace
}  // namespace slotwise::ctl
