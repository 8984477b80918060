#include "server/intake/audit_log.h"

#include <spdlog/spdlog.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "server/intake/rare_log.h"

namespace slotwise {
namespace {

// Bounds of lines by kind and principal's name. The configuration names the principals, so the map stays
// small. The empty name stands for all callers of a server without principals.
struct Bounds {
  std::mutex mutex;
  std::map<std::pair<Deed, std::string>, RareLog> logs;
};

Bounds& AllBounds() {
  static Bounds bounds;
  return bounds;
}

// If the next line may be written, returns how many were held back before it; otherwise nothing.
std::optional<std::uint64_t> Pass(Deed kind, const Principal* who) {
  Bounds& bounds = AllBounds();
  const std::lock_guard lock(bounds.mutex);
  std::pair<Deed, std::string> key{kind, {}};
  if (who != nullptr) key.second = who->name;
  return bounds.logs.try_emplace(key, kAuditInterval, kAuditLines).first->second.Pass();
}

std::string_view VerbOf(Deed kind) {
  switch (kind) {
    case Deed::kMakes:
      return "made";
    case Deed::kTakesAway:
      return "took away";
    case Deed::kTakesAlong:
      return "took along";
    case Deed::kSets:
      break;
  }
  return "set";
}

}  // namespace

void LogDeed(Deed kind, std::string_view deed, const Caller& caller) {
  const auto held_back = Pass(kind, caller.principal());
  if (!held_back) return;
  if (*held_back == 0) return spdlog::info("{}, as {} asked", deed, caller.label());
  spdlog::info("{}, as {} asked ({} more such lines were held back)", deed, caller.label(), *held_back);
}

void LogHeldBackDeeds(std::chrono::steady_clock::time_point now) {
  Bounds& bounds = AllBounds();
  const std::lock_guard lock(bounds.mutex);
  for (auto& [key, log] : bounds.logs) {
    const std::uint64_t held_back = log.TakeHeldBack(now);
    if (held_back == 0) continue;
    const auto& [kind, name] = key;
    spdlog::info("{} more lines of what {} {} were held back", held_back, name.empty() ? "callers" : name,
                 VerbOf(kind));
  }
}

HeldBackDeeds::HeldBackDeeds()
    : thread_([](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any never;
        std::unique_lock lock(mutex);
        const auto stopped = [&stop] { return stop.stop_requested(); };
        while (!never.wait_for(lock, stop, kAuditInterval, stopped)) LogHeldBackDeeds();
      }) {}

HeldBackDeeds::~HeldBackDeeds() {
  thread_.request_stop();
  thread_.join();
  LogHeldBackDeeds(std::chrono::steady_clock::time_point::max());
}

}  // namespace slotwise
