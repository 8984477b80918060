#include "server/durability/checked_fields.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "server/durability/checksum.h"
#include "server/durability/hex.h"
#include "wire/json.h"

namespace slotwise {

using nlohmann::json;

namespace {

constexpr std::size_t kHexDigits = 16;
// Our files nest less deep than this. The parsers take memory for each level.
constexpr int kMaxNesting = 16;
constexpr std::size_t kMostOfComplaint = 300;  // protobuf quotes what it refuses, however long

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

void CheckedFields::Complain(const std::string& name, const std::string& what) {
  if (!reads()) return;
  const std::string path = Path(name);
  error_ = (path.empty() ? "the outermost value" : path) + " " + what;
}

const CheckedFields::Field* CheckedFields::FieldOf(const std::string& name) {
  listed_.insert(name);
  const Field* const field = from_.GetDescriptor()->FindFieldByName(name);
  if (!field) throw std::logic_error(from_.GetTypeName() + " has no field " + name);
  return field;
}

const CheckedFields::Field* CheckedFields::Present(const std::string& name) {
  const Field* const field = FieldOf(name);
  if (!to_ && !from_.GetReflection()->HasField(from_, field)) Complain(name, "is missing");
  return field;
}

bool CheckedFields::Has(const std::string& name, bool written) {
  const Field* const field = FieldOf(name);
  return to_ ? written : from_.GetReflection()->HasField(from_, field);
}

void CheckedFields::Unsigned(const std::string& name, std::uint64_t& number) {
  const Field* const field = Present(name);
  const auto* const reflection = from_.GetReflection();
  const bool is_wide = field->cpp_type() == Field::CPPTYPE_UINT64;
  if (!to_) {
    number = is_wide ? reflection->GetUInt64(from_, field) : reflection->GetUInt32(from_, field);
  } else if (is_wide) {
    reflection->SetUInt64(to_, field, number);
  } else {
    reflection->SetUInt32(to_, field, static_cast<std::uint32_t>(number));
  }
}

void CheckedFields::Text(const std::string& name, std::string& text) {
  const Field* const field = Present(name);
  if (to_) from_.GetReflection()->SetString(to_, field, text);
  text = from_.GetReflection()->GetString(from_, field);
}

void CheckedFields::HexNumber(const std::string& name, std::uint64_t& number) {
  std::string digits = Hex(number);
  Text(name, digits);
  if (!ParseHex(digits, number)) Complain(name, "is no string of 16 hexadecimal digits");
}

void CheckedFields::HexNumbers(const std::string& name, std::vector<std::uint64_t>& numbers) {
  const Field* const field = FieldOf(name);
  const auto* const reflection = from_.GetReflection();
  if (to_) {
    for (const std::uint64_t number : numbers) reflection->AddString(to_, field, Hex(number));
    return;
  }
  numbers.resize(static_cast<std::size_t>(reflection->FieldSize(from_, field)));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!ParseHex(reflection->GetRepeatedString(from_, field, static_cast<int>(i)), numbers[i]))
      Complain(name, "has what is not 16 hexadecimal digits");
  }
}

void CheckedFields::Float(const std::string& name, float& number) {
  const Field* const field = Present(name);
  if (to_) from_.GetReflection()->SetFloat(to_, field, number);
  number = from_.GetReflection()->GetFloat(from_, field);
  if (!std::isfinite(number)) Complain(name, "is no finite float32");
}

void CheckedFields::Flag(const std::string& name, bool& flag) {
  const Field* const field = FieldOf(name);
  if (to_ && flag) from_.GetReflection()->SetBool(to_, field, flag);
  flag = from_.GetReflection()->GetBool(from_, field);
}

google::protobuf::Message& CheckedFields::Written(const std::string& name) {
  return *from_.GetReflection()->MutableMessage(to_, FieldOf(name));
}

const google::protobuf::Message& CheckedFields::Found(const std::string& name) {
  return from_.GetReflection()->GetMessage(from_, Present(name));
}

google::protobuf::Message& CheckedFields::Added(const std::string& name) {
  return *from_.GetReflection()->AddMessage(to_, FieldOf(name));
}

int CheckedFields::CountOf(const std::string& name) {
  return from_.GetReflection()->FieldSize(from_, FieldOf(name));
}

const google::protobuf::Message& CheckedFields::ElementOf(const std::string& name, int index) {
  return from_.GetReflection()->GetRepeatedMessage(from_, FieldOf(name), index);
}

std::uint64_t CheckedFields::Version(std::uint64_t version, std::uint64_t oldest) {
  std::uint64_t said = version;
  Number("format_version", said);
  if (said < oldest || said > version) {
    const std::string all = oldest == version ? "" : std::to_string(oldest) + " to ";
    Complain("format_version", "is " + std::to_string(said) + ", and this version of Slotwise reads " + all +
                                   std::to_string(version));
  }
  return said;
}

void CheckedFields::ComplainOfUnlisted() {
  if (!reads()) return;
  std::vector<const Field*> there;
  from_.GetReflection()->ListFields(from_, &there);
  for (const Field* const field : there) {
    if (!listed_.contains(field->name())) Complain(field->name(), "is unknown to this version");
  }
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

std::string SerializeChecked(const google::protobuf::Message& message, std::uint64_t& checksum) {
  std::string text = ToJsonLines(message);
  text.erase(0, 2);  // the brace and the end of its line
  checksum = ChecksumOf(text);
  return FirstLine(checksum) + text;
}

Result<std::uint64_t> VersionOfChecked(std::string_view text, const std::string& path) {
  const std::size_t first_line = FirstLine(0).size();
  if (text.size() > kMaxCheckedBytes) return TooLong(path);
  if (text.size() < first_line ||
      text.substr(0, first_line) != FirstLine(ChecksumOf(text.substr(first_line)))) {
    return FailedPrecondition(path + " is damaged: its checksum is not that of its text");
  }
  constexpr std::string_view kVersion = "format_version";
  bool deep = false;
  const auto version_alone = [&](int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    deep = deep || (depth >= kMaxNesting && (event == Event::object_start || event == Event::array_start));
    return !deep && (depth == 0 || event != Event::key || value == kVersion);
  };
  const json object = json::parse(text, version_alone, false);
  if (deep) return FailedPrecondition(path + " has brackets within brackets, more than a server writes");
  if (object.is_discarded()) return FailedPrecondition(path + " is no JSON");
  if (!object.contains(kVersion)) return FailedPrecondition(path + ": format_version is missing");
  if (!object[kVersion].is_number_unsigned())
    return FailedPrecondition(path + ": format_version is no whole number");
  return object[kVersion].get<std::uint64_t>();
}

Status ParseMessage(std::string_view text, const std::string& path, google::protobuf::Message& message) {
  const Status status = FromJson(text, message);
  return status.ok() ? Status()
                     : FailedPrecondition(path + ": " + status.message().substr(0, kMostOfComplaint));
}

}  // namespace slotwise
