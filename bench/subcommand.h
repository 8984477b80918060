// A Subcommand of slotwise-bench. To add one, write a file with an Add...() function, and add its name to
// main.cc.
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
  CLI::App* app;  // parsed() says whether the user chose the subcommand
  std::shared_ptr<const CommonOptions> common;
  // Runs on every rank; rank 0's report counts. Throws std::exception if a check failed, or if the machine
  // cannot run the benchmark.
  std::function<Report(Collective&)> run;
};

// Each function adds a subcommand and its options to `parent`.
Subcommand AddTable(CLI::App& parent);
Subcommand AddEmbedding(CLI::App& parent);
Subcommand AddRounds(CLI::App& parent);
Subcommand AddRpc(CLI::App& parent);
Subcommand AddClient(CLI::App& parent);
Subcommand AddTables(CLI::App& parent);
Subcommand AddLiving(CLI::App& parent);
Subcommand AddJournal(CLI::App& parent);
Subcommand AddCheckpoint(CLI::App& parent);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_SUBCOMMAND_H_
