#include "server/intake/audit_log.h"

#include <spdlog/spdlog.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/intake/rare_log.h"

namespace slotwise {
namespace {

// Returns how many lines were held back, if the next one may be written. There are no more principals than
// the configuration names.
std::optional<std::uint64_t> Pass(Deed kind, const Principal* who) {
  static std::mutex mutex;
  static std::map<std::pair<Deed, std::string>, RareLog> logs;
  const std::lock_guard lock(mutex);
  std::pair<Deed, std::string> key{kind, {}};
  if (who != nullptr) key.second = who->name;
  return logs.try_emplace(key, kAuditInterval, kAuditLines).first->second.Pass();
}

}  // namespace

void LogDeed(Deed kind, std::string_view deed, const Caller& caller) {
  const auto held_back = Pass(kind, caller.principal());
  if (!held_back) return;
  if (*held_back == 0) return spdlog::info("{}, as {} asked", deed, caller.label());
  spdlog::info("{}, as {} asked ({} more such lines were held back)", deed, caller.label(), *held_back);
}

}  // namespace slotwise
