// CheckedFields: the fields of a protobuf message, listed once, to fill the message from a value and to check
// the message and fill the value. A list is a function of the fields and a value, which calls a method for
// each field. A reader is strict: it names the first field that is missing, out of range or not in the list.
//
// A checked text is the JSON of such a message (proto/slotwise/v1/manifest.proto). Its first line has the
// field "checksum": the XXH3-64 of all bytes behind that line. Its parser refuses damage, and deep nesting.
// Errors: FAILED_PRECONDITION, naming the file, and those of FileSystem. Thread-safety: one thread at a time;
// free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_CHECKED_FIELDS_H_
#define SLOTWISE_SERVER_DURABILITY_CHECKED_FIELDS_H_

#include <google/protobuf/message.h>

#include <concepts>
#include <cstdint>
#include <limits>
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

class CheckedFields {
 public:
  using Message = google::protobuf::Message;

  // Adds a value's fields to an empty message.
  template <class T>
  static void Write(Message& to, T value, const auto& list) {
    std::string none;
    Visit(&to, to, "", none, value, list);
  }
  // Returns the first complaint, or nothing. `where` names the message in the complaint: "options", or empty.
  // After a complaint `value` may be anything.
  template <class T>
  static std::string Read(const Message& message, const std::string& where, T& value, const auto& list) {
    std::string error;
    Visit(nullptr, message, where, error, value, list);
    return error;
  }

  // Each of these writes the field of that name, or reads the field and complains of a wrong one.
  template <std::unsigned_integral T>
  void Number(const std::string& name, T& number, std::uint64_t least = 0,
              std::uint64_t most = std::numeric_limits<T>::max()) {
    std::uint64_t wide = number;
    Unsigned(name, wide);
    if (wide < least || wide > most)
      Complain(name, "is no whole number from " + std::to_string(least) + " to " + std::to_string(most));
    number = static_cast<T>(wide);
  }
  void HexNumber(const std::string& name, std::uint64_t& number);
  void HexNumbers(const std::string& name, std::vector<std::uint64_t>& numbers);
  void Float(const std::string& name, float& number);
  void Flag(const std::string& name, bool& flag);  // may be absent, which is false
  void Text(const std::string& name, std::string& text);
  // Writes the version of a checked text's format, or returns the one that is read, which may be one since
  // `oldest`.
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
  // Returns the message of a field, for a writer to fill, or for a reader to read.
  Message& Written(const std::string& name);
  const Message& Found(const std::string& name);
  template <class T>
  void Object(const std::string& name, T& value, const auto& list) {
    Message* const to = to_ ? &Written(name) : nullptr;
    Visit(to, to ? *to : Found(name), Path(name), error_, value, list);
  }
  // The field is absent where there is no value.
  template <class T>
  void Optional(const std::string& name, std::optional<T>& value, const auto& list) {
    if (Has(name, value.has_value())) Object(name, value ? *value : value.emplace(), list);
  }
  // A reader does not read the objects behind a complaint.
  template <class T>
  void Objects(const std::string& name, std::vector<T>& values, const auto& list,
               std::size_t most = std::numeric_limits<std::size_t>::max()) {
    if (to_) {
      for (T& value : values) {
        Message& added = Added(name);
        Visit(&added, added, "", error_, value, list);
      }
    }
    const int count = to_ ? 0 : CountOf(name);
    if (static_cast<std::size_t>(count) > most)
      Complain(name, "has more than " + std::to_string(most) + " elements");
    for (int i = 0; i < count && reads(); ++i)
      Visit(nullptr, ElementOf(name, i), Path(name) + "[" + std::to_string(i) + "]", error_,
            values.emplace_back(), list);
  }

  bool writes() const { return to_ != nullptr; }
  // Returns whether this reads a message in which no field was wrong yet.
  bool reads() const { return !to_ && error_.empty(); }
  // Returns whether a field that may be absent is in the message, or, in a writer, `written`.
  bool Has(const std::string& name, bool written);
  // Does nothing after another complaint, or in a writer.
  void Complain(const std::string& name, const std::string& what);

 private:
  CheckedFields(Message* to, const Message& from, std::string where, std::string& error)
      : to_(to), from_(from), where_(std::move(where)), error_(error) {}

  template <class T>
  static void Visit(Message* to, const Message& from, const std::string& where, std::string& error, T& value,
                    const auto& list) {
    CheckedFields fields(to, from, where, error);
    list(fields, value);
    fields.ComplainOfUnlisted();
  }

  using Field = google::protobuf::FieldDescriptor;
  // std::logic_error: the message has no such field.
  const Field* FieldOf(const std::string& name);
  // The same; a reader complains of an absent field.
  const Field* Present(const std::string& name);
  void Unsigned(const std::string& name, std::uint64_t& number);
  Message& Added(const std::string& name);
  int CountOf(const std::string& name);
  const Message& ElementOf(const std::string& name, int index);
  void ComplainOfUnlisted();
  std::string Path(const std::string& name) const {
    return where_ + (where_.empty() || name.empty() ? "" : ".") + name;
  }

  Message* const to_;  // null in a reader
  const Message& from_;
  const std::string where_;
  std::string& error_;
  std::set<std::string, std::less<>> listed_;
};

inline constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{256} << 20;

// Reads a checked text, of at most kMaxCheckedBytes. Does not check the bytes.
Result<std::string> ReadCheckedText(FileSystem& files, const std::string& path);

// Returns the text of a message that has a field beside `checksum`, and no `checksum`. Sets `checksum`.
std::string SerializeChecked(const google::protobuf::Message& message, std::uint64_t& checksum);

// Checks a text's bytes against its checksum, and returns its format_version. `path` is for messages.
Result<std::uint64_t> VersionOfChecked(std::string_view text, const std::string& path);

// Reads the JSON of a message. FAILED_PRECONDITION, with the field that protobuf names.
Status ParseMessage(std::string_view json, const std::string& path, google::protobuf::Message& message);

// Reads a value of a message.
template <class T>
Result<T> CheckMessage(const google::protobuf::Message& message, const std::string& path, const auto& list) {
  T value;
  const std::string error = CheckedFields::Read(message, "", value, list);
  if (!error.empty()) return FailedPrecondition(path + ": " + error);
  return value;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKED_FIELDS_H_
