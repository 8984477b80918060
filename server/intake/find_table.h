// Finds the table that a caller names, if he may do there what he asks for. It is apart from the checks of
// fields, which know no engine. Thread-safety: free functions.
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

// Finds the table that a caller names, for whom `needs` are the rights that he needs on it: PERMISSION_DENIED
// if he lacks them, NOT_FOUND if there is no such table; both name it.
using FindTable = std::function<Result<TableInfo>(std::string_view name, Rights needs)>;

// Finds the engine's tables for a caller. `engine` and `caller` outlive the result.
FindTable TablesFor(const Engine& engine, const Caller& caller);
// The same, once.
Result<TableInfo> TableNamed(const Engine& engine, const Caller& caller, std::string_view name, Rights needs);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_FIND_TABLE_H_
