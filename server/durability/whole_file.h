// Small files of the data folder that are replaced as a whole.
#ifndef SLOTWISE_SERVER_DURABILITY_WHOLE_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_WHOLE_FILE_H_

#include <string>
#include <string_view>

#include "server/durability/file_system.h"
#include "slotwise/status.h"

namespace slotwise {

// Replaces a file atomically: after any failure the file has its old contents or all of `text`. OK: `text` is
// durable. A crash can leave `.NAME.partial`, which the next call removes. Errors are the FileSystem's.
Status WriteWholeFile(FileSystem& files, const std::string& folder, std::string_view name,
                      std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_WHOLE_FILE_H_
