// A Principal is a caller that the configuration knows by a token or a certificate, with the caller's grants.
// Thread-safety: immutable once made; counters are safe from any thread.
#ifndef SLOTWISE_SERVER_ACCESS_PRINCIPAL_H_
#define SLOTWISE_SERVER_ACCESS_PRINCIPAL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

// Rights on a table, or, in a grant for all tables, on the server. Combined by |.
enum class Rights : std::uint8_t {
  kNone = 0,
  kRead = 1,     // lookups that make no rows
  kPush = 2,     // pushes, and lookups that make rows
  kRows = 4,     // export, import and erase
  kAdmin = 8,    // make and drop the table, set its learning rate; on all tables: checkpoints
  kObserve = 16  // only on all tables: a rank's counters, and the names and options of tables
};
constexpr Rights operator|(Rights a, Rights b) {
  return static_cast<Rights>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr Rights operator&(Rights a, Rights b) {
  return static_cast<Rights>(static_cast<std::uint8_t>(a) & static_cast<std::uint8_t>(b));
}
constexpr bool Includes(Rights all, Rights some) { return (all & some) == some; }

// Returns the names of the rights: "read and push".
std::string ToString(Rights rights);

// Stands for all tables in a grant.
inline constexpr std::string_view kAllTables = "*";

struct Grant {
  std::string table;  // a name, or kAllTables
  Rights rights = Rights::kNone;
};

// The refused calls since the rank began.
struct RefusedAccess {
  std::atomic<std::uint64_t> unauthenticated{0};    // the caller is unknown
  std::atomic<std::uint64_t> permission_denied{0};  // the caller lacks the right
};

struct Principal {
  std::string name = {};
  std::vector<Grant> grants = {};
  Status refusal = {};  // not OK: the caller is unknown, and gets this answer
  std::shared_ptr<RefusedAccess> refused = nullptr;

  // Returns the union of the rights that the grants give on the table.
  Rights On(std::string_view table) const;
};
// Null is a caller that may do everything: the server itself, or any caller of a server without principals.
using PrincipalPtr = std::shared_ptr<const Principal>;

// Returns PERMISSION_DENIED, with the name and the missing right, and counts it, unless `who` has `needs` on
// the table. If `needs` is kNone, any right is enough. The answer does not show whether the table exists.
// `table` may be kAllTables, for the server itself. `shown` is the table's name as messages may quote it.
Status Allow(const Principal* who, Rights needs, std::string_view table, std::string_view shown);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_PRINCIPAL_H_
