// A Principal is somebody whom the configuration knows, by a token or a certificate, and what it grants him.
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

// Rights on a table, or, of a grant for all tables, on the server. They may be combined by |.
enum class Rights : std::uint8_t {
  kNone = 0,
  kRead = 1,     // lookups that make no rows
  kPush = 2,     // pushes, and lookups that make rows
  kRows = 4,     // export, import and erase
  kAdmin = 8,    // make and drop the table, set its learning rate; of all tables: checkpoints
  kObserve = 16  // what a rank counts, which names all tables, and describe them; of all tables only
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

// What a table's name is in a grant for all tables.
inline constexpr std::string_view kAllTables = "*";

struct Grant {
  std::string table;  // a name, or kAllTables
  Rights rights = Rights::kNone;
};

// How often somebody was refused, since the rank began.
struct RefusedAccess {
  std::atomic<std::uint64_t> unauthenticated{0};    // calls without a name that the configuration has
  std::atomic<std::uint64_t> permission_denied{0};  // calls of somebody without the right
};

struct Principal {
  std::string name = {};
  std::vector<Grant> grants = {};
  Status refusal = {};  // not OK: the caller is unknown, and is answered this
  std::shared_ptr<RefusedAccess> refused = nullptr;

  // The union of what its grants say of the table.
  Rights On(std::string_view table) const;
};
// Null is a caller that may do everything: the server itself, or any of a server without principals.
using PrincipalPtr = std::shared_ptr<const Principal>;

// Returns PERMISSION_DENIED, with the name and what is missing, and counts it, unless `who` has `needs` on
// the table, or, if `needs` is kNone, any right; whether there is such a table is not said. `table` may be
// kAllTables, for what is of the server. `shown` is the table's name as messages may quote it.
Status Allow(const Principal* who, Rights needs, std::string_view table, std::string_view shown);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_PRINCIPAL_H_
