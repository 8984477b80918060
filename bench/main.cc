// slotwise-bench times Slotwise on this machine, and compares it with the floor of the machine's memory and
// with peers.
//
// Run alone, the program measures one device. Under mpirun it measures one device a rank, and rank 0 reports.
// The exit status is 0; 1 if a result was wrong or the machine cannot run the benchmark; or CLI11's own
// status (above 100) for wrong options.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <exception>
#include <vector>

#include "bench/report.h"
#include "bench/subcommand.h"
#include "server/collective/collective.h"

namespace slotwise::bench {
namespace {

// The subcommands, in the order of --help.
constexpr std::array kSubcommands{&AddTable,  &AddEmbedding, &AddRounds,  &AddRpc,       &AddClient,
                                  &AddTables, &AddLiving,    &AddJournal, &AddCheckpoint};

void RunOn(Collective& collective, const Subcommand& subcommand) {
  const Report report = subcommand.run(collective);
  if (Value(collective.rank()) != 0) return;
  Print(report);
  if (!subcommand.common->json.empty()) WriteJson(report, subcommand.common->json);
}

int Main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);  // the report is printed, but not the engines' usual messages
  CLI::App app(
      "Times Slotwise on this machine: each result is checked first, then timed in turn with the peers.\n"
      "The floor is what must move through memory, at the speed that this memory is measured to have.\n"
      "Under mpirun each rank measures a device: mpirun -n 4 slotwise-bench embedding --backend cuda");
  app.require_subcommand(1);
  std::vector<Subcommand> subcommands;
  for (const auto& add : kSubcommands) subcommands.push_back(add(app));
  CLI11_PARSE(app, argc, argv);

  for (const Subcommand& subcommand : subcommands) {
    if (!subcommand.app->parsed()) continue;
    if (!LaunchedByMpi()) {
      RunOn(*MakeSoloCollective(), subcommand);
      continue;
    }
    const MpiSession mpi;
    try {
      RunOn(*MakeMpiCollective(), subcommand);
    } catch (const std::exception& error) {  // without the abort, other ranks would wait for this rank
      std::fprintf(stderr, "slotwise-bench: %s\n", error.what());
      MpiSession::AbortAllRanks(1);
    }
  }
  return 0;
}

}  // namespace
}  // namespace slotwise::bench

int main(int argc, char** argv) {
  try {
    return slotwise::bench::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "slotwise-bench: %s\n", error.what());
    return 1;
  }
}
