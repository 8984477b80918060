#include "server/durability/checked_json.h"

#include <span>
#include <utility>

#include "server/durability/checksum.h"
#include "server/durability/hex.h"

namespace slotwise {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Our files nest less deep than this. The parser takes memory for each level that it opens.
constexpr int kMaxNesting = 16;

// Returns whether the text opens more brackets within each other than what we write.
bool NestsTooDeep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxNesting) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

std::string FirstLine(std::uint64_t checksum) { return "{\"checksum\": \"" + Hex(checksum) + "\",\n"; }

Status TooLong(const std::string& path) {
  return FailedPrecondition(path + " has more than " + std::to_string(kMaxCheckedBytes) + " bytes");
}

}  // namespace

CheckedText SerializeChecked(const ordered_json& object) {
  // Bytes that are no UTF-8 cannot be dumped strictly; the parser refuses what comes out instead of them.
  std::string text = object.dump(1, ' ', false, ordered_json::error_handler_t::replace);
  text.erase(0, 2);  // the brace and the end of its line
  text += '\n';
  const std::uint64_t checksum = ChecksumOf(text);
  text.insert(0, FirstLine(checksum));
  return {.text = std::move(text), .checksum = checksum};
}

Result<std::string> ReadCheckedText(FileSystem& files, const std::string& path) {
  const auto file = files.Open(path);
  if (!file.ok()) return file.status();
  if ((*file)->size() > kMaxCheckedBytes) return TooLong(path);
  std::string text((*file)->size(), '\0');
  if (Status status = (*file)->ReadAt(0, std::as_writable_bytes(std::span(text))); !status.ok())
    return status;
  return text;
}

Result<json> ParseChecked(std::string_view text, const std::string& path) {
  const std::size_t first_line = FirstLine(0).size();
  if (text.size() > kMaxCheckedBytes) return TooLong(path);
  if (text.size() < first_line ||
      text.substr(0, first_line) != FirstLine(ChecksumOf(text.substr(first_line)))) {
    return FailedPrecondition(path + " is damaged: its checksum is not that of its text");
  }
  if (NestsTooDeep(text))
    return FailedPrecondition(path + " has brackets within brackets, more than a server writes");
  json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return FailedPrecondition(path + " is no JSON");
  return object;
}

}  // namespace slotwise
