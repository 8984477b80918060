#include "tests/sim/scheduler.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace slotwise::sim {
namespace {

// Keeps the threads that this one starts on its processor while it lives: only one of them runs at a time,
// and there they pass the baton fastest.
class OnOneProcessor {
 public:
  OnOneProcessor() {
    const int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(here), &one);
    changed_ = sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  ~OnOneProcessor() {
    if (changed_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  OnOneProcessor(const OnOneProcessor&) = delete;
  OnOneProcessor& operator=(const OnOneProcessor&) = delete;

 private:
  cpu_set_t before_{};
  bool changed_ = false;
};

}  // namespace

Scheduler::Scheduler(std::uint64_t seed, int ranks, World& world, const SchedulerLimits& limits)
    : limits_(limits), world_(world), random_(seed) {
  for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<RankThread>());
}

Scheduler::~Scheduler() {
  for (const auto& rank : ranks_) {
    if (rank->thread.joinable()) rank->thread.join();
  }
}

void Scheduler::Run(const std::function<void(int)>& body) {
  const OnOneProcessor pinned;
  for (int r = 0; r < ranks(); ++r) {
    RankThread& mine = *ranks_[Index(r)];
    mine.thread = std::thread([this, &mine, &body, r] {
      mine.baton.acquire();
      try {
        body(r);
      } catch (const RankEnded&) {
      } catch (const std::exception& error) {
        if (!AnyKilled()) Fail("rank " + std::to_string(r) + " threw: " + error.what());
      }
      mine.ended = true;
      RankThread* const next = Draw();
      next == nullptr ? all_ended_.release() : next->baton.release();
    });
  }
  Draw()->baton.release();
  all_ended_.acquire();
}

void Scheduler::Yield(int rank, const char* where) { Await(rank, where, {}); }

void Scheduler::Await(int rank, std::string where, std::function<bool()> ready, Time deadline) {
  RankThread& mine = *ranks_[Index(rank)];
  mine.where = std::move(where);
  mine.ready = std::move(ready);
  mine.deadline = deadline;
  mine.since = now_;
  mine.since_event = events_;
  PassOn(mine);
  mine.ready = {};
  mine.deadline = kNever;
  mine.where = "work";
  if (mine.killed) {
    mine.unwinding = true;
    throw RankEnded();
  }
}

bool Scheduler::AwaitQuietly(int rank, std::string where, std::function<bool()> ready) noexcept {
  if (killed(rank)) return false;
  try {
    Await(rank, std::move(where), std::move(ready));
    return true;
  } catch (const RankEnded&) {
    return false;
  }
}

void Scheduler::PassOn(RankThread& mine) {
  if (mine.unwinding) return;  // destructors on the way out wait for nobody
  RankThread* const next = Draw();
  if (next == &mine) return;
  next->baton.release();
  mine.baton.acquire();
}

Scheduler::RankThread* Scheduler::Draw() {
  for (;;) {
    if (std::ranges::all_of(ranks_, [](const auto& rank) { return rank->ended; })) return nullptr;
    ++events_;
    now_ += random_.Below(16);
    if (events_ > limits_.events && !failure_) Fail("the simulation does not end: " + Waiting());
    if (!failure_) world_.Happen();
    if (events_ % 256 == 0) {
      LookForStuck();
      for (const auto& rank : ranks_) rank->weight = random_.OneIn(3) ? 1 + random_.Below(30) : 4;
    }

    std::vector<RankThread*> ready;
    std::uint64_t weights = 0;
    for (const auto& rank : ranks_) {
      if (!CanGoOn(*rank)) continue;
      ready.push_back(rank.get());
      weights += rank->weight;
    }
    if (ready.empty()) {
      if (!world_.HappenWhileIdle()) AdvanceTime();
      continue;
    }
    std::uint64_t place = random_.Below(weights);
    for (RankThread* rank : ready) {
      if (place < rank->weight) return rank;
      place -= rank->weight;
    }
  }
}

bool Scheduler::CanGoOn(RankThread& rank) {
  if (rank.ended) return false;
  if (rank.killed) return true;
  if (rank.frozen_until > now_) return false;
  return !rank.ready || rank.deadline <= now_ || rank.ready();
}

// To the first deadline, or a drawn way further.
void Scheduler::AdvanceTime() {
  Time next = kNever;
  for (const auto& rank : ranks_) {
    if (rank->ended) continue;
    if (rank->frozen_until > now_) {
      next = std::min(next, rank->frozen_until);
    } else {
      next = std::min(next, rank->deadline);
    }
  }
  if (next == kNever) {
    if (AnyKilled()) return KillAll();
    return Fail("nobody can go on: " + Waiting());
  }
  now_ = std::max(next, now_ + world_.DrawJump());
  LookForStuck();
}

void Scheduler::LookForStuck() {
  constexpr std::uint64_t kEvents = 2000;  // others had their turns
  if (failure_) return;
  for (const auto& rank : ranks_) {
    if (rank->ended || rank->killed || !rank->ready || rank->deadline != kNever) continue;
    const Time waited = now_ - rank->since;
    if (AnyKilled() && waited > limits_.watchdog) return KillAll();
    if (waited > limits_.stuck && events_ - rank->since_event > kEvents) {
      return Fail("a rank waits for ever: " + Waiting());
    }
  }
}

std::string Scheduler::Waiting() const {
  std::string all;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankThread& rank = *ranks_[r];
    all += (r == 0 ? "rank " : "; rank ") + std::to_string(r) + ": " + (rank.ended ? "ended" : rank.where);
    if (rank.frozen_until > now_) all += ", stopped";
  }
  return all;
}

void Scheduler::Kill(int rank) { ranks_[Index(rank)]->killed = true; }

bool Scheduler::AnyKilled() const {
  return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->killed; });
}

void Scheduler::KillAll() {
  for (const auto& rank : ranks_) rank->killed = true;
}

void Scheduler::Fail(const std::string& what) {
  if (!failure_) {
    failure_ = what;
    if (print_) std::printf("%10llu us  FAILED: %s\n", static_cast<unsigned long long>(now_), what.c_str());
  }
  KillAll();
}

void Scheduler::Trace(std::uint64_t kind, std::uint64_t detail, const std::function<std::string()>& line) {
  for (const std::uint64_t word : {now_, kind, detail})
    hash_ = (hash_ ^ word) * 0x100000001b3 + (hash_ >> 29);
  if (print_) {
    std::printf("%10llu us  %s\n", static_cast<unsigned long long>(now_), line().c_str());
    std::fflush(stdout);
  }
}

}  // namespace slotwise::sim
