// JSON objects whose first line has a checksum: the XXH3-64 of all bytes behind that line. The parser refuses
// damage, and brackets that nest too deep.
// Errors: FAILED_PRECONDITION, naming the file, and those of FileSystem.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_CHECKED_JSON_H_
#define SLOTWISE_SERVER_DURABILITY_CHECKED_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/durability/file_system.h"
#include "slotwise/status.h"

namespace slotwise {

inline constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{256} << 20;

struct CheckedText {
  std::string text;
  std::uint64_t checksum = 0;  // which the first line has, as the object's field "checksum"
};

// Writes an object that has a field, and none that is called "checksum".
CheckedText SerializeChecked(const nlohmann::ordered_json& object);

// Reads the text of such an object, of at most kMaxCheckedBytes, which are not looked at.
Result<std::string> ReadCheckedText(FileSystem& files, const std::string& path);

// `path` is for messages.
Result<nlohmann::json> ParseChecked(std::string_view text, const std::string& path);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKED_JSON_H_
