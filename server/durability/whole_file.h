// Small files of the data folder that are written whole.
#ifndef SLOTWISE_SERVER_DURABILITY_WHOLE_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_WHOLE_FILE_H_

#include <string>
#include <string_view>

#include "server/durability/file_system.h"
#include "slotwise/status.h"

namespace slotwise {

// Writes a file so that, whatever happens, it is as it was before, or has all of `text`; OK: the latter, for
// good. What a crash leaves beside it, `.NAME.partial`, the next call replaces. Errors are the FileSystem's.
Status WriteWholeFile(FileSystem& files, const std::string& folder, std::string_view name,
                      std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_WHOLE_FILE_H_
