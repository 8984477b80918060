#include <array>
#include <stdexcept>
#include <string>

#include "server/engine/operations/alter_table.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/definition.h"
#include "server/engine/operations/describe_session.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/erase_rows.h"
#include "server/engine/operations/import_rows.h"
#include "server/engine/operations/list_evicted.h"
#include "server/engine/operations/list_keys.h"
#include "server/engine/operations/load_checkpoint.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/read_rows.h"
#include "server/engine/operations/remove_rows.h"
#include "server/engine/operations/save_checkpoint.h"
#include "server/engine/operations/set_learning_rate.h"
#include "server/engine/operations/summarize.h"

namespace slotwise {
namespace {

using namespace operations;  // NOLINT(google-build-using-namespace): the list is of them

constexpr std::array kAll{
    TraitsOf<Lookup>(),         TraitsOf<Push>(),
    TraitsOf<CreateTable>(),    TraitsOf<DropTable>(),
    TraitsOf<Summarize>(),      TraitsOf<SetLearningRate>(),
    TraitsOf<ImportRows>(),     TraitsOf<EraseRows>(),
    TraitsOf<ListKeys>(),       TraitsOf<ReadRows>(),
    TraitsOf<SaveCheckpoint>(), TraitsOf<ReportCheckpoint>(),
    TraitsOf<LoadCheckpoint>(), TraitsOf<DescribeSession>(),
    TraitsOf<RemoveRows>(),     TraitsOf<ListEvicted>(),
    TraitsOf<AlterTable>(),
};

}  // namespace

OperationTable::OperationTable(std::span<const OperationTraits> more) {
  const auto add = [this](const OperationTraits& traits) {
    OperationTraits& place = by_number_[static_cast<std::size_t>(traits.number)];
    if (place.run != nullptr)
      throw std::logic_error("two operations have number " +
                             std::to_string(static_cast<unsigned>(traits.number)));
    for (const RecordKind kind : traits.records) {
      if (OfRecord(kind) != nullptr)
        throw std::logic_error("two operations have records of kind " +
                               std::to_string(static_cast<std::uint32_t>(kind)));
    }
    place = traits;
  };
  for (const OperationTraits& traits : kAll) add(traits);
  for (const OperationTraits& traits : more) add(traits);
}

const OperationTraits* OperationTable::OfRecord(RecordKind kind) const {
  const auto found = std::ranges::find_if(by_number_, [&](const OperationTraits& traits) {
    return std::ranges::find(traits.records, kind) != traits.records.end();
  });
  return found == by_number_.end() ? nullptr : &*found;
}

}  // namespace slotwise
