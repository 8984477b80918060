#include "server/durability/table_options_text.h"

#include "server/durability/table_options_json.h"

namespace slotwise {

std::string ToText(const TableOptions& options) { return ToJson(options).dump(); }

Result<TableOptions> TableOptionsFromText(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return DataLoss("a table's options are no JSON");
  std::string error;
  const TableOptions options = ParseTableOptions(Fields(json, "options.", error));
  if (!error.empty()) return DataLoss(error);
  return options;
}

}  // namespace slotwise
