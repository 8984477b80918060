#include "server/intake/find_table.h"

#include <string>

#include "server/intake/quoted.h"

namespace slotwise {

FindTable TablesFor(const Engine& engine, const Caller& caller) {
  return [&engine, &caller](std::string_view name, Rights needs) {
    return TableNamed(engine, caller, name, needs);
  };
}

Result<TableInfo> TableNamed(const Engine& engine, const Caller& caller, std::string_view name,
                             Rights needs) {
  if (Status allowed = Allow(caller.principal(), needs, name, Quoted(name)); !allowed.ok()) return allowed;
  if (auto table = engine.FindTable(name)) return *table;
  return NotFound("there is no table " + Quoted(name)).Because(Reason::kNoTable);
}

}  // namespace slotwise
