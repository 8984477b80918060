// Finds the table that a caller names, if the caller has the rights. Separate from the checks of fields,
// which do not depend on the engine. Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_INTAKE_FIND_TABLE_H_
#define SLOTWISE_SERVER_INTAKE_FIND_TABLE_H_

#include <functional>
#include <string_view>

#include "server/access/principal.h"
#include "server/engine/caller.h"
#include "server/engine/engine.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"

namespace slotwise {

// Finds the table that a caller names. PERMISSION_DENIED: the caller lacks the rights `needs` on the table.
// NOT_FOUND: there is no such table. Both errors name the table.
using FindTable = std::function<Result<TableInfo>(std::string_view name, Rights needs)>;

// Returns a function that finds the engine's tables for a caller. `engine` and `caller` outlive the function.
FindTable TablesFor(const Engine& engine, const Caller& caller);
// Finds one table in the same way.
Result<TableInfo> TableNamed(const Engine& engine, const Caller& caller, std::string_view name, Rights needs);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_FIND_TABLE_H_
