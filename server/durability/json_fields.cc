#include "server/durability/json_fields.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace slotwise {

using nlohmann::json;

namespace {

constexpr std::size_t kHexDigits = 16;
const json kNothing;

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

Fields::Fields(const json& object, std::string where, std::string& error)
    : object_(object), where_(std::move(where)), error_(error) {
  if (!object_.is_object()) Complain("", "is no object");
}

void Fields::Complain(const std::string& name, const std::string& what) {
  if (!error_.empty()) return;
  std::string path = Path(name);
  if (path.ends_with('.')) path.pop_back();
  error_ = (path.empty() ? "the outermost value" : path) + " " + what;
}

const json& Fields::Find(const std::string& name) {
  known_.insert(name);
  if (object_.is_object()) {
    if (const auto found = object_.find(name); found != object_.end()) return *found;
  }
  Complain(name, "is missing");
  return kNothing;
}

std::uint64_t Fields::Number(const std::string& name, std::uint64_t least, std::uint64_t most) {
  const json& value = Find(name);
  const std::uint64_t number = value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  if (value.is_number_unsigned() && number >= least && number <= most) return number;
  Complain(name, "is no whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return least;
}

std::uint64_t Fields::HexNumber(const std::string& name) {
  const json& value = Find(name);
  std::uint64_t number = 0;
  if (!value.is_string() || !ParseHex(value.get_ref<const std::string&>(), number))
    Complain(name, "is no string of 16 hexadecimal digits");
  return number;
}

float Fields::Float(const std::string& name) {
  const json& value = Find(name);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  // A finite float is the same number as a double, and is written as one.
  const auto rounded =
      std::abs(number) <= double{std::numeric_limits<float>::max()} ? static_cast<float>(number) : 0;
  if (double{rounded} != number) Complain(name, "is no finite float32");
  return rounded;
}

bool Fields::Flag(const std::string& name) {
  const json& value = Find(name);
  if (value.is_boolean()) return value.get<bool>();
  Complain(name, "is neither true nor false");
  return false;
}

std::string Fields::Text(const std::string& name) {
  const json& value = Find(name);
  if (value.is_string()) return value.get<std::string>();
  Complain(name, "is no string");
  return {};
}

const json& Fields::Array(const std::string& name) {
  const json& value = Find(name);
  if (value.is_array()) return value;
  Complain(name, "is no array");
  return kNothing;
}

Fields Fields::Object(const std::string& name) { return {Find(name), Path(name) + ".", error_}; }

void Fields::RefuseOthers() {
  if (!object_.is_object()) return;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) Complain(name, "is unknown to this version");
  }
}

}  // namespace slotwise
