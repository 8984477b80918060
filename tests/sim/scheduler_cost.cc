#include "tests/sim/scheduler_cost.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <vector>

#include "server/engine/schedule/round_scheduler.h"
#include "server/engine/tables.h"

namespace slotwise::sim {
namespace {

constexpr TableId kTable{1};

double SecondsOfThread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Proposal Of(OperationClass operation_class, TicketNumber ticket) {
  Proposal proposal;
  proposal.operation_class = operation_class;
  proposal.of_table = true;
  proposal.table = kTable;
  proposal.samples = 4;
  proposal.keys = 8;
  proposal.ticket = ticket;
  return proposal;
}

// Every rank proposes two lookups and a part of a step that all ranks share: a decision serves the lookups,
// the next one the step.
class Ranks {
 public:
  explicit Ranks(std::size_t ranks) : headers_(ranks) {
    Table table;
    table.info.id = kTable;
    table.info.options.dim = 8;
    tables_.Add(std::move(table));
  }

  void Wait(std::size_t steps) {
    for (std::size_t i = 0; i < steps; ++i) {
      for (Header& header : headers_) header.count = 0;
      Header& header = headers_[i % headers_.size()];
      header.count = 1;
      header.proposals[0] = Of(OperationClass::kStepPart, ++ticket_);
      header.proposals[0].step = {1, i + 1, 0, 2};
      round_scheduler_.Decide(headers_);
    }
  }

  void Decide(bool propose) {
    const auto ranks = static_cast<std::uint32_t>(headers_.size());
    ++step_;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      Header& header = headers_[r];
      header.count = propose ? 3 : 0;
      if (!propose) continue;
      header.proposals[0] = Of(OperationClass::kLookup, ++ticket_);
      header.proposals[1] = Of(OperationClass::kLookup, ++ticket_);
      header.proposals[2] = Of(OperationClass::kStepPart, ++ticket_);
      header.proposals[2].step = {2, step_, r, ranks};
    }
    round_scheduler_.Decide(headers_);
  }

 private:
  Tables tables_{100};
  RoundScheduler round_scheduler_{{std::uint64_t{1} << 30, 1'000'000}, tables_};
  std::vector<Header> headers_;
  TicketNumber ticket_ = 0;
  std::uint64_t step_ = 0;
};

}  // namespace

double SecondsOfDecision(std::size_t ranks, std::size_t waiting) {
  constexpr int kTries = 20;
  constexpr int kPairs = 5;
  Ranks simulated(ranks);
  if (waiting > 0) simulated.Wait(waiting);
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < kTries; ++i) {
    const double begin = SecondsOfThread();
    for (int pair = 0; pair < kPairs; ++pair) {
      simulated.Decide(true);
      simulated.Decide(false);
    }
    least = std::min(least, (SecondsOfThread() - begin) / (2 * kPairs));
  }
  return least;
}

void PrintSchedulerCost() {
  std::printf("scheduler, microseconds a round:");
  for (const std::size_t ranks : {64, 256, 1024}) {
    std::printf("  %zu ranks %.1f", ranks, SecondsOfDecision(ranks) * 1e6);
  }
  std::printf("; 64 ranks beside 65536 incomplete steps %.1f\n", SecondsOfDecision(64, 65536) * 1e6);
}

}  // namespace slotwise::sim
