// JsonFields: an object of JSON whose fields are listed once, to write the object and to read it. A list is a
// function of the fields and a value, which calls a method for each. A reader is strict: the first field that
// is missing, mistyped, out of range or unknown is named, and nothing that was read counts then.
//
// A checked text is such an object whose first line has a checksum, as the field "checksum": the XXH3-64 of
// all bytes behind that line. Its parser refuses damage, and brackets that nest too deep.
// Errors: FAILED_PRECONDITION, naming the file, and those of FileSystem.
// Thread-safety: one thread at a time; free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_JSON_FIELDS_H_
#define SLOTWISE_SERVER_DURABILITY_JSON_FIELDS_H_

#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/durability/file_system.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

class JsonFields {
 public:
  using Json = nlohmann::json;
  using OrderedJson = nlohmann::ordered_json;

  template <class T>
  static OrderedJson Write(T value, const auto& list) {
    OrderedJson object;
    std::string none;
    Visit(&object, kNothing, "", none, value, list);
    return object;
  }
  // Returns the first complaint, or nothing. `where` names the object in it: "options", or empty.
  template <class T>
  static std::string Read(const Json& object, const std::string& where, T& value, const auto& list) {
    std::string error;
    Visit(nullptr, object, where, error, value, list);
    return error;
  }

  // Each of these writes a field, or reads it; what was complained about may have any value.
  template <std::unsigned_integral T>
  void Number(const std::string& name, T& number, std::uint64_t least = 0,
              std::uint64_t most = std::numeric_limits<T>::max()) {
    std::uint64_t wide = number;
    if (!Field(name, wide, &Json::is_number_unsigned) || wide < least || wide > most)
      Complain(name, "is no whole number from " + std::to_string(least) + " to " + std::to_string(most));
    number = static_cast<T>(wide);
  }
  void HexNumber(const std::string& name, std::uint64_t& number);
  void Float(const std::string& name, float& number);
  void Flag(const std::string& name, bool& flag) {  // false is left out
    if (Has(name, flag) && !Field(name, flag, &Json::is_boolean)) Complain(name, "is neither true nor false");
  }
  void Text(const std::string& name, std::string& text) {
    if (!Field(name, text, &Json::is_string)) Complain(name, "is no string");
  }
  void Array(const std::string& name, Json& array) {
    if (!Field(name, array, &Json::is_array)) Complain(name, "is no array");
  }
  // An object that has a text of its own, which is not looked at here.
  void ObjectText(const std::string& name, std::string& text);
  // Writes the version of a checked text's format, or returns the one that is read, which may be one since
  // `oldest`. The checksum, which the writer of the text adds, may be there.
  std::uint64_t Version(std::uint64_t version, std::uint64_t oldest);
  // One of an enumeration's kinds, by name.
  template <class T>
  void Kind(const std::string& name, T& kind) {
    std::string text(ToString(kind));
    Text(name, text);
    for (const T each : EveryKind<T>()) {
      if (ToString(each) != text) continue;
      kind = each;
      return;
    }
    Complain(name, "is '" + text + "', which this version does not know");
  }
  template <class T>
  void Object(const std::string& name, T& value, const auto& list) {
    Visit(to_ ? &(*to_)[name] : nullptr, Find(name), Path(name), error_, value, list);
  }
  template <class T>
  void Nullable(const std::string& name, std::optional<T>& value, const auto& list) {
    if (to_ && !value) (*to_)[name] = nullptr;
    if (to_ ? value.has_value() : !Find(name).is_null()) Object(name, value ? *value : value.emplace(), list);
  }
  // An array of objects, of which those behind a complaint are not read.
  template <class T>
  void Objects(const std::string& name, std::vector<T>& values, const auto& list,
               std::size_t most = std::numeric_limits<std::size_t>::max()) {
    if (to_) {
      OrderedJson& written = (*to_)[name] = OrderedJson::array();
      for (T& value : values) Visit(&written.emplace_back(), kNothing, "", error_, value, list);
      return;
    }
    const Json& array = Find(name);
    if (!array.is_array()) Complain(name, "is no array");
    if (array.size() > most) Complain(name, "has more than " + std::to_string(most) + " elements");
    for (std::size_t i = 0; i < array.size() && reads(); ++i)
      Visit(nullptr, array[i], Path(name) + "[" + std::to_string(i) + "]", error_, values.emplace_back(),
            list);
  }

  // Returns whether this reads a text in which no field was wrong yet.
  bool reads() const { return !to_ && error_.empty(); }
  // Returns whether a field that may be left out is in the text, or, in a writer, `written`.
  bool Has(const std::string& name, bool written) const { return to_ ? written : from_.contains(name); }
  // Does nothing after another complaint, or in a writer.
  void Complain(const std::string& name, const std::string& what);

 private:
  JsonFields(OrderedJson* to, const Json& from, std::string where, std::string& error)
      : to_(to), from_(from), where_(std::move(where)), error_(error) {}

  template <class T>
  static void Visit(OrderedJson* to, const Json& from, const std::string& where, std::string& error, T& value,
                    const auto& list) {
    JsonFields fields(to, from, where, error);
    if (!from.is_object()) fields.Complain("", "is no object");
    list(fields, value);
    for (const auto& field : from.items()) {
      if (!fields.known_.contains(field.key())) fields.Complain(field.key(), "is unknown to this version");
    }
  }

  // Returns false if what is read is of another type.
  template <class T>
  bool Field(const std::string& name, T& value, bool (Json::*is_type)() const) {
    if (to_) (*to_)[name] = value;
    const Json& found = Find(name);
    if ((found.*is_type)()) found.get_to(value);
    return to_ || (found.*is_type)();
  }
  // A writer finds null.
  const Json& Find(const std::string& name);
  std::string Path(const std::string& name) const {
    return where_ + (where_.empty() || name.empty() ? "" : ".") + name;
  }

  static const Json kNothing;
  OrderedJson* const to_;  // null in a reader
  const Json& from_;
  const std::string where_;
  std::string& error_;
  std::set<std::string> known_;
};

inline constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{256} << 20;

// Reads a checked text, of at most kMaxCheckedBytes, which are not looked at.
Result<std::string> ReadCheckedText(FileSystem& files, const std::string& path);

// Returns the text of an object that has a field, and none that is called "checksum".
std::string SerializeChecked(const nlohmann::ordered_json& object);
// `path` is for messages.
Result<nlohmann::json> ParseChecked(std::string_view text, const std::string& path);

template <class T>
Result<T> ParseChecked(std::string_view text, const std::string& path, const auto& list) {
  const auto object = ParseChecked(text, path);
  if (!object.ok()) return object.status();
  T value;
  const std::string error = JsonFields::Read(*object, "", value, list);
  if (!error.empty()) return FailedPrecondition(path + ": " + error);
  return value;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JSON_FIELDS_H_
