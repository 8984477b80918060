// What a subcommand of slotwise-bench is. To add one: a file with an Add...() function, and its name in main.cc.
#ifndef SLOTWISE_BENCH_SUBCOMMAND_H_
#define SLOTWISE_BENCH_SUBCOMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "bench/common_options.h"
#include "bench/report.h"
#include "server/collective/collective.h"

namespace slotwise::bench {

struct Subcommand {
  CLI::App* app;  // parsed() once it was asked for
  std::shared_ptr<const CommonOptions> common;
  // Runs on every rank. Rank 0's report is the one that counts. Throws std::exception: a check that failed, or a
  // machine that cannot.
  std::function<Report(Collective&)> run;
};

// Each adds its subcommand and that one's options to `parent`.
Subcommand AddTable(CLI::App& parent);
Subcommand AddEmbedding(CLI::App& parent);
Subcommand AddRounds(CLI::App& parent);
Subcommand AddRpc(CLI::App& parent);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_SUBCOMMAND_H_
