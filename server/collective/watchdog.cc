#include "server/collective/watchdog.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace slotwise {
namespace {

// Returns the pause between two looks: short enough that a report is late by a small part of the limit, long
// enough to cost nothing.
std::chrono::milliseconds PauseOf(std::chrono::milliseconds limit) {
  return std::clamp(limit / 20, std::chrono::milliseconds(1), std::chrono::milliseconds(200));
}

std::string Describe(const char* name, std::size_t bytes) {
  return std::string(name) + " of " + std::to_string(bytes) + " bytes";
}

}  // namespace

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Start(std::chrono::milliseconds limit, std::function<void(const std::string&)> stuck) {
  const std::scoped_lock lock(mutex_);
  limit_ = limit;
  stuck_ = std::move(stuck);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

std::chrono::milliseconds Watchdog::SetLimit(std::chrono::milliseconds limit) {
  const std::scoped_lock lock(mutex_);
  return std::exchange(limit_, limit);
}

Watchdog::Scope::Scope(Watchdog& watchdog, const char* name, std::size_t bytes, DurationCounter* durations)
    : watchdog_(watchdog), durations_(durations) {
  const std::scoped_lock lock(watchdog_.mutex_);
  watchdog_.scopes_.push_back({name, bytes, Clock::now(), {}});
}

Watchdog::Scope::~Scope() {
  const std::scoped_lock lock(watchdog_.mutex_);
  const std::chrono::nanoseconds lasted = Clock::now() - watchdog_.scopes_.back().begin;
  watchdog_.scopes_.pop_back();
  if (durations_ != nullptr) durations_->Count(lasted);
  if (watchdog_.scopes_.empty()) watchdog_.waited_ns_.fetch_add(lasted.count(), std::memory_order_relaxed);
}

void Watchdog::Add(const char* name, std::size_t bytes, std::function<bool()> ended) {
  const std::scoped_lock lock(mutex_);
  if (!thread_.joinable()) return;  // before Start nothing is watched, and nothing would remove the operation
  added_.push_back({name, bytes, Clock::now(), std::move(ended)});
}

void Watchdog::ForgetEnded() {
  const std::scoped_lock lock(mutex_);
  ForgetEndedLocked();
}

void Watchdog::Run() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, PauseOf(limit_), [this] { return stop_; })) {
    if (const auto wrong = Look()) {
      const auto stuck = stuck_;
      lock.unlock();
      return stuck(*wrong);
    }
  }
}

std::optional<std::string> Watchdog::Look() {
  if (auto failed = ForgetEndedLocked()) return failed;
  if (!added_.empty()) {
    if (auto overdue = Overdue(added_.front())) return overdue;
  }
  return scopes_.empty() ? std::nullopt : Overdue(scopes_.front());
}

std::optional<std::string> Watchdog::ForgetEndedLocked() {
  std::optional<std::string> failed;
  std::erase_if(added_, [&](const Operation& operation) {
    try {
      return !failed && operation.ended();
    } catch (const std::exception& error) {
      failed = Describe(operation.name, operation.bytes) + " has failed: " + error.what();
      return false;
    }
  });
  return failed;
}

std::optional<std::string> Watchdog::Overdue(const Operation& operation) const {
  const auto age = Clock::now() - operation.begin;
  if (age < limit_) return std::nullopt;
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.1f s", std::chrono::duration<double>(age).count());
  return Describe(operation.name, operation.bytes) + " has not ended after " + seconds;
}

}  // namespace slotwise
