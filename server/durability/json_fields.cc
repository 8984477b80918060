#include "server/durability/json_fields.h"

#include <charconv>
#include <cmath>
#include <span>

#include "server/durability/checksum.h"
#include "server/durability/hex.h"

namespace slotwise {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr std::size_t kHexDigits = 16;
// Our files nest less deep than this. The parser takes memory for each level that it keeps.
constexpr int kMaxNesting = 16;

std::string FirstLine(std::uint64_t checksum) { return "{\"checksum\": \"" + Hex(checksum) + "\",\n"; }

Status TooLong(const std::string& path) {
  return FailedPrecondition(path + " has more than " + std::to_string(kMaxCheckedBytes) + " bytes");
}

}  // namespace

std::string Hex(std::uint64_t number) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(kHexDigits, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, number >>= 4)
    *digit = kDigits[number & 15U];
  return text;
}

bool ParseHex(const std::string& text, std::uint64_t& number) {
  if (text.size() != kHexDigits) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, kHexDigits);
  return error == std::errc() && end == text.data() + text.size() && Hex(number) == text;
}

const json JsonFields::kNothing;

void JsonFields::Complain(const std::string& name, const std::string& what) {
  if (!reads()) return;
  const std::string path = Path(name);
  error_ = (path.empty() ? "the outermost value" : path) + " " + what;
}

const json& JsonFields::Find(const std::string& name) {
  known_.insert(name);
  if (from_.contains(name)) return from_[name];
  Complain(name, "is missing");
  return kNothing;
}

void JsonFields::HexNumber(const std::string& name, std::uint64_t& number) {
  std::string digits = Hex(number);
  if (!Field(name, digits, &json::is_string) || !ParseHex(digits, number))
    Complain(name, "is no string of 16 hexadecimal digits");
}

void JsonFields::Float(const std::string& name, float& number) {
  double exact = number;
  // A finite float is the same number as a double, and is written as one.
  const bool fits =
      Field(name, exact, &json::is_number) && std::abs(exact) <= double{std::numeric_limits<float>::max()};
  if (fits) number = static_cast<float>(exact);
  if (!fits || double{number} != exact) Complain(name, "is no finite float32");
}

void JsonFields::ObjectText(const std::string& name, std::string& text) {
  if (to_) (*to_)[name] = ordered_json::parse(text);
  const json& found = Find(name);
  if (!found.is_object()) return Complain(name, "is no object");
  text = found.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::uint64_t JsonFields::Version(std::uint64_t version, std::uint64_t oldest) {
  known_.insert("checksum");
  std::uint64_t said = version;
  Number("format_version", said);
  if (said < oldest || said > version) {
    const std::string all = oldest == version ? "" : std::to_string(oldest) + " to ";
    Complain("format_version", "is " + std::to_string(said) + ", and this version of Slotwise reads " + all +
                                   std::to_string(version));
  }
  return said;
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

std::string SerializeChecked(const ordered_json& object) {
  // Bytes that are no UTF-8 cannot be dumped strictly; the parser refuses what comes out instead of them.
  std::string text = object.dump(1, ' ', false, ordered_json::error_handler_t::replace);
  text.erase(0, 2);  // the brace and the end of its line
  text += '\n';
  return FirstLine(ChecksumOf(text)) + text;
}

Result<json> ParseChecked(std::string_view text, const std::string& path) {
  const std::size_t first_line = FirstLine(0).size();
  if (text.size() > kMaxCheckedBytes) return TooLong(path);
  if (text.size() < first_line ||
      text.substr(0, first_line) != FirstLine(ChecksumOf(text.substr(first_line)))) {
    return FailedPrecondition(path + " is damaged: its checksum is not that of its text");
  }
  bool deep = false;
  const auto shallow = [&](int depth, json::parse_event_t event, const json&) {
    using Event = json::parse_event_t;
    deep = deep || (depth >= kMaxNesting && (event == Event::object_start || event == Event::array_start));
    return !deep;
  };
  json object = json::parse(text, shallow, false);
  if (deep) return FailedPrecondition(path + " has brackets within brackets, more than a server writes");
  if (object.is_discarded()) return FailedPrecondition(path + " is no JSON");
  return object;
}

}  // namespace slotwise
