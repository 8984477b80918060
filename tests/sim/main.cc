// slotwise-sim runs seeds of the simulation. `./dev sim` starts it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/durable_simulation.h"
#include "tests/sim/scheduler_cost.h"
#include "tests/sim/simulation.h"

namespace slotwise::sim {
namespace {

struct Flags {
  std::uint64_t seeds = 1000;
  std::uint64_t first = 1;
  std::uint64_t only = 0;  // one seed alone
  int jobs = 0;            // 0: as many as processors
  bool trace = false;
  bool fail_fast = false;
  bool durable = false;  // servers that die and come back
};

constexpr std::string_view kUsage =
    "usage: slotwise-sim [--durable] [--seeds N] [--first S] [--jobs N] [--fail-fast] | --seed S [--trace]\n";

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--trace" || flag == "--fail-fast" || flag == "--durable") {
      (flag == "--trace" ? flags.trace : flag == "--durable" ? flags.durable : flags.fail_fast) = true;
      continue;
    }
    const char* const value = i + 1 < argc ? argv[++i] : nullptr;
    char* end = nullptr;
    const std::uint64_t number = value == nullptr ? 0 : std::strtoull(value, &end, 10);
    const bool good = value != nullptr && end != value && *end == '\0';
    if (good && flag == "--seeds") {
      flags.seeds = number;
    } else if (good && flag == "--first") {
      flags.first = number;
    } else if (good && flag == "--seed" && number > 0) {
      flags.only = number;
    } else if (good && flag == "--jobs") {
      flags.jobs = static_cast<int>(number);
    } else {
      std::fputs(kUsage.data(), stderr);
      std::exit(2);
    }
  }
  return flags;
}

// What a process tells its parent: before a seed, and after it.
struct Message {
  int job = 0;
  std::uint64_t seed = 0;
  bool ended = false;
  Outcome outcome = {};
  LifeOutcome lives = {};
  char failure[1500] = {};
};

void RunJob(int job, int jobs, const Flags& flags, int to_parent) {
  for (std::uint64_t i = static_cast<std::uint64_t>(job); i < flags.seeds;
       i += static_cast<std::uint64_t>(jobs)) {
    Message message{.job = job, .seed = flags.first + i};
    if (write(to_parent, &message, sizeof(message)) != sizeof(message)) _exit(1);
    const auto judge = [&](const auto& result, auto& outcome) {
      outcome = result.outcome;
      if (result.failure.empty()) return;
      std::snprintf(message.failure, sizeof(message.failure), "%s\n%s", result.failure.c_str(),
                    result.plan.c_str());
    };
    if (flags.durable) {
      judge(RunDurableSeed(message.seed), message.lives);
    } else {
      judge(RunSeed(message.seed), message.outcome);
    }
    message.ended = true;
    if (write(to_parent, &message, sizeof(message)) != sizeof(message)) _exit(1);
  }
}

void PrintFailure(const Flags& flags, std::uint64_t seed, const char* what) {
  std::printf("seed %" PRIu64 " FAILED: %s\n  again: ./dev sim %s--seed %" PRIu64 " --trace\n", seed, what,
              flags.durable ? "--durable " : "", seed);
  std::fflush(stdout);
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void PrintTotals(const Outcome& sum, std::uint64_t failed, double seconds) {
  std::printf("%" PRIu64 " seeds in %.0f s (%.0f a second), %" PRIu64 " failed\n", sum.seeds, seconds,
              static_cast<double>(sum.seeds) / seconds, failed);
  std::printf("  events %" PRIu64 ", decisions %" PRIu64 ", rounds %" PRIu64 ", requests %" PRIu64 "\n",
              sum.events, sum.decisions, sum.rounds, sum.requests);
  std::printf("  ranks killed %" PRIu64 ", stopped early %" PRIu64 ", frozen for a while %" PRIu64
              "; clients dropped %" PRIu64 ", refused by full request queues %" PRIu64 "\n",
              sum.kills, sum.early_stops, sum.freezes, sum.dropped_clients, sum.full_request_queues);
  std::printf("  calls by shared buffers %" PRIu64 ", answered %" PRIu64 ", refused for their bytes %" PRIu64
              ", rewritten %" PRIu64 "; clients cut off %" PRIu64 ", left amid calls %" PRIu64 "\n",
              sum.shared_buffers.calls, sum.shared_buffers.answered, sum.shared_buffers.refused,
              sum.shared_buffers.rewritten, sum.shared_buffers.cut_off, sum.shared_buffers.left);
  std::printf("  slowest round: %.1f ms of the simulated time, %.2f ms of a processor's\n",
              static_cast<double>(sum.slowest_round_us) * 1e-3,
              static_cast<double>(sum.slowest_round_ns) * 1e-6);
}

void PrintLives(const LifeOutcome& sum, std::uint64_t seeds, std::uint64_t failed, double seconds) {
  std::printf("%" PRIu64 " seeds in %.0f s (%.1f a second), %" PRIu64 " failed\n%s", seeds, seconds,
              static_cast<double>(seeds) / seconds, failed, Describe(sum).c_str());
}

// Seeds in several processes, so that one that crashes is known.
int RunMany(const Flags& flags) {
  const int jobs = flags.jobs > 0 ? flags.jobs : std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  int ends[2];
  if (pipe(ends) != 0) return 1;
  std::vector<pid_t> children;
  std::fflush(stdout);
  for (int job = 0; job < jobs; ++job) {
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      RunJob(job, jobs, flags, ends[1]);
      std::exit(0);
    }
    children.push_back(child);
  }
  close(ends[1]);

  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> at(static_cast<std::size_t>(jobs));  // the seed that each is at
  Outcome sum;
  LifeOutcome lives;
  std::uint64_t ended = 0;
  std::uint64_t failed = 0;
  double printed = 0;
  Message message;
  while (read(ends[0], &message, sizeof(message)) == static_cast<ssize_t>(sizeof(message))) {
    at[static_cast<std::size_t>(message.job)] = message.ended ? 0 : message.seed;
    if (!message.ended) continue;
    ++ended;
    sum.Add(message.outcome);
    lives.Add(message.lives);
    if (message.failure[0] != '\0') {
      ++failed;
      PrintFailure(flags, message.seed, message.failure);
      if (flags.fail_fast) break;
    }
    if (const double seconds = SecondsSince(begin); seconds - printed >= 10) {
      printed = seconds;
      std::printf("%" PRIu64 " of %" PRIu64 " seeds, %.0f s, %" PRIu64 " failed\n", ended, flags.seeds,
                  seconds, failed);
      std::fflush(stdout);
    }
  }
  close(ends[0]);
  for (std::size_t job = 0; job < children.size(); ++job) {
    int status = 0;
    if (flags.fail_fast && failed > 0) kill(children[job], SIGKILL);
    waitpid(children[job], &status, 0);
    if (status == 0 || (flags.fail_fast && failed > 0)) continue;
    ++failed;
    PrintFailure(flags, at[job], WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "its process ended");
  }
  if (flags.durable) {
    PrintLives(lives, ended, failed, SecondsSince(begin));
    return failed == 0 ? 0 : 1;
  }
  PrintTotals(sum, failed, SecondsSince(begin));
  PrintSchedulerCost();
  return failed == 0 ? 0 : 1;
}

// Tells of one seed, which has run. Returns how many failed.
template <class ResultOfSeed>
int PrintOne(const Flags& flags, const ResultOfSeed& result) {
  if (!flags.trace) std::printf("%s\n", result.plan.c_str());
  if (result.failure.empty()) return 0;
  PrintFailure(flags, flags.only, result.failure.c_str());
  return 1;
}

int RunOne(const Flags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  if (flags.durable) {
    const DurableResult result = RunDurableSeed(flags.only, flags.trace);
    const int failed = PrintOne(flags, result);
    PrintLives(result.outcome, 1, static_cast<std::uint64_t>(failed), SecondsSince(begin));
    return failed;
  }
  const SeedResult result = RunSeed(flags.only, flags.trace);
  const int failed = PrintOne(flags, result);
  PrintTotals(result.outcome, static_cast<std::uint64_t>(failed), SecondsSince(begin));
  std::printf("  hash of the trace: %016" PRIx64 "\n", result.outcome.trace_hash);
  return failed;
}

}  // namespace
}  // namespace slotwise::sim

int main(int argc, char** argv) {
  const slotwise::sim::Flags flags = slotwise::sim::Parse(argc, argv);
  return flags.only > 0 ? slotwise::sim::RunOne(flags) : slotwise::sim::RunMany(flags);
}
