#include "server/access/principal.h"

#include <array>
#include <utility>

namespace slotwise {

std::string ToString(Rights rights) {
  static constexpr std::array kNames{std::pair(Rights::kRead, "read"), std::pair(Rights::kPush, "push"),
                                     std::pair(Rights::kRows, "rows"), std::pair(Rights::kAdmin, "admin"),
                                     std::pair(Rights::kObserve, "observe")};
  std::string names;
  for (const auto& [right, name] : kNames) {
    if (!Includes(rights, right)) continue;
    if (!names.empty()) names += " and ";
    names += name;
  }
  return names.empty() ? "no right" : names;
}

Rights Principal::On(std::string_view table) const {
  Rights rights = Rights::kNone;
  for (const Grant& grant : grants) {
    if (grant.table == kAllTables || grant.table == table) rights = rights | grant.rights;
  }
  return rights;
}

Status Allow(const Principal* who, Rights needs, std::string_view table, std::string_view shown) {
  if (who == nullptr) return {};
  if (!who->refusal.ok()) return who->refusal;
  const Rights has = who->On(table);
  if (needs == Rights::kNone ? has != Rights::kNone : Includes(has, needs)) return {};
  if (who->refused) who->refused->permission_denied.fetch_add(1, std::memory_order_relaxed);
  Rights missing = Rights::kNone;
  for (const Rights right : {Rights::kRead, Rights::kPush, Rights::kRows, Rights::kAdmin, Rights::kObserve}) {
    if (Includes(needs, right) && !Includes(has, right)) missing = missing | right;
  }
  return PermissionDenied(who->name + " may not: it needs " +
                          (needs == Rights::kNone ? std::string("a right") : ToString(missing)) + " on " +
                          (table == kAllTables ? std::string("all tables") : "table " + std::string(shown)) +
                          " (security.principals)");
}

}  // namespace slotwise
