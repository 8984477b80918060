#include "tests/sim/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <utility>

namespace slotwise::sim {
namespace {

std::uint64_t NanosecondsOfThread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

Scheduler::Scheduler(std::uint64_t seed, int ranks, World& world, const SchedulerLimits& limits)
    : limits_(limits), world_(world), random_(seed) {
  for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<Rank>());
}

void Scheduler::Run(const std::function<void(int)>& body) {
  for (int r = 0; r < ranks(); ++r) {
    Rank& mine = *ranks_[Index(r)];
    mine.fiber = std::make_unique<Fiber>([this, &mine, &body, r] {
      running_ = r;
      try {
        body(r);
      } catch (const RankEnded&) {
      } catch (const std::exception& error) {
        if (!AnyKilled()) Fail("rank " + std::to_string(r) + " threw: " + error.what());
      }
      mine.ended = true;
      Rank* const next = Draw();
      EndTurn(mine);
      mine.fiber->LeaveTo(next == nullptr ? main_ : *next->fiber);
    });
  }
  switched_at_ns_ = NanosecondsOfThread();
  main_.SwitchTo(*Draw()->fiber);
}

void Scheduler::EndTurn(Rank& rank) {
  const std::uint64_t now = NanosecondsOfThread();
  rank.spent_ns += now - switched_at_ns_;
  switched_at_ns_ = now;
}

std::uint64_t Scheduler::SpentNanoseconds(int rank) const {
  return ranks_[Index(rank)]->spent_ns + NanosecondsOfThread() - switched_at_ns_;
}

void Scheduler::Yield(int rank, const char* where) { Await(rank, where, {}); }

void Scheduler::Await(int rank, std::string where, std::function<bool()> ready, Time deadline) {
  Rank& mine = *ranks_[Index(rank)];
  mine.where = std::move(where);
  mine.ready = std::move(ready);
  mine.deadline = deadline;
  mine.since = now_;
  mine.since_event = events_;
  PassOn(mine);
  running_ = rank;
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

void Scheduler::PassOn(Rank& mine) {
  if (mine.unwinding) return;  // destructors on the way out wait for no rank
  Rank* const next = Draw();
  if (next == &mine) return;
  EndTurn(mine);
  mine.fiber->SwitchTo(*next->fiber);
}

Scheduler::Rank* Scheduler::Draw() {
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

    std::vector<Rank*> ready;
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
    for (Rank* rank : ready) {
      if (place < rank->weight) return rank;
      place -= rank->weight;
    }
  }
}

bool Scheduler::CanGoOn(Rank& rank) {
  if (rank.ended) return false;
  if (rank.killed) return !rank.may_unwind || rank.may_unwind();
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
    return Fail("no rank can go on: " + Waiting());
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
    const Rank& rank = *ranks_[r];
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
