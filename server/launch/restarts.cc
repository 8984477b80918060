#include "server/launch/restarts.h"

#include <algorithm>

namespace slotwise::launch {
namespace {

constexpr int kFirstSignal = 129;
constexpr int kMostDoublings = 30;  // the longest wait is reached long before

}  // namespace

std::variant<Restart, GiveUp> Restarts::After(const RunEnd& end, Clock::time_point now) {
  has_served_ = has_served_ || end.served;
  if (!has_served_ && end.exit_code < kFirstSignal) return GiveUp{"it has never served: see its log"};
  while (!past_.empty() && now - past_.front() >= limits_.within) past_.pop_front();
  if (past_.size() >= static_cast<std::size_t>(limits_.most)) {
    return GiveUp{"it was restarted " + std::to_string(past_.size()) + " times within " +
                  std::to_string(limits_.within.count() / 1000) + " s, the most that --restarts allows"};
  }
  if (end.served && end.served_for >= limits_.longest_backoff) doublings_ = 0;
  const auto wait =
      std::min(limits_.longest_backoff, limits_.first_backoff * (std::int64_t{1} << doublings_));
  doublings_ = std::min(doublings_ + 1, kMostDoublings);
  past_.push_back(now);
  return Restart{.wait = wait, .number = static_cast<int>(past_.size())};
}

}  // namespace slotwise::launch
