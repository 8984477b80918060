// Compares the lists of slotwise/table_options.h with the messages of proto/slotwise/v1/admin.proto and the
// classes of the Python client when Slotwise is built. An option that only some of them have fails the build.
//
//     schema_check client/python/slotwise
#include <google/protobuf/descriptor.h>

#include <cctype>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slotwise/table_options.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr std::string_view kLists = "include/slotwise/table_options.h";
constexpr std::string_view kMessages = "proto/slotwise/v1/admin.proto";

class Check {
 public:
  explicit Check(std::string folder)
      : folder_(std::move(folder)),
        package_(Read("__init__.py")),
        optimizers_(Read("optimizers.py")),
        options_(Read("options.py")),
        calls_(Read("admin_calls.py")) {}

  bool Run() {
    TableOptions table;
    Compare(table, *v1::TableOptions::descriptor(),
            {"name", "optimizer", "initializer", "eviction", "admission"},
            ClassIn(options_, "options.py", "TableOptions"));
    Compare(table.eviction, *v1::Eviction::descriptor(), {}, ClassIn(options_, "options.py", "Eviction"));
    Compare(table.admission, *v1::Admission::descriptor(), {}, "");
    Compare(table.optimizer.schedule, *v1::Schedule::descriptor(), {}, "");
    Compare(table.optimizer, *v1::Optimizer::descriptor(), {"schedule"}, "");
    Compare(table.initializer, *v1::Initializer::descriptor(), {}, "");
    CompareKinds<OptimizerOptions>("optimizer", *v1::Optimizer::descriptor());
    CompareKinds<InitializerOptions>("initializer", *v1::Initializer::descriptor());
    for (const AdmissionKind kind : EveryKind<AdmissionKind>()) CompareAdmission(kind);
    CompareEnum<Combiner>(*v1::Combiner_descriptor(), "COMBINER_");
    CompareEnum<DataType>(*v1::DataType_descriptor(), "DATA_TYPE_");
    CompareEnum<CounterKind>(*v1::Counter_descriptor(), "COUNTER_");
    CompareEnum<Rounding>(*v1::Rounding_descriptor(), "ROUNDING_");
    return good_;
  }

 private:
  // Visits the options of one message. `python`: the class with the same names; empty: none.
  struct Visitor {
    Check& check;
    const Descriptor& message;
    const std::string& python;
    bool has_defaults;  // the class has defaults for submessages too
    std::set<std::string>& seen;

    template <class T>
    void operator()(const Option<T>& option, const T& /*value*/) const {
      const std::string name(option.name);
      seen.insert(name);
      const FieldDescriptor* const field = message.FindFieldByName(name);
      check.Expect(field != nullptr && field->cpp_type() == TypeOf<T>(),
                   std::string(kMessages) + ": message " + message.name() + " has no field " + name +
                       " of the type that " + std::string(kLists) + " has");
      if (python.empty()) return;
      const std::size_t at = python.find("\n    " + name + ": ");
      check.Expect(at != std::string::npos,
                   check.folder_ + ": the class of message " + message.name() + " has no attribute " + name);
      check.Expect(&message != v1::TableOptions::descriptor() ||
                       check.calls_.find("\n        " + name + ": ") != std::string::npos,
                   check.folder_ + "/admin_calls.py: create_table has no argument " + name);
      if constexpr (std::is_same_v<T, float>) {
        if (has_defaults && at != std::string::npos)
          check.CompareDefault(option, std::string_view(python).substr(at + 1), message.name());
      }
    }
  };

  template <class T>
  static FieldDescriptor::CppType TypeOf() {
    if constexpr (std::is_same_v<T, float>) return FieldDescriptor::CPPTYPE_FLOAT;
    if constexpr (std::is_same_v<T, bool>) return FieldDescriptor::CPPTYPE_BOOL;
    if constexpr (std::is_same_v<T, std::uint32_t>) return FieldDescriptor::CPPTYPE_UINT32;
    if constexpr (std::is_same_v<T, std::uint64_t>) return FieldDescriptor::CPPTYPE_UINT64;
    return FieldDescriptor::CPPTYPE_ENUM;
  }

  // `others`: fields that are not options.
  template <class Options>
  void Compare(const Options& options, const Descriptor& message, std::set<std::string> others,
               const std::string& python) {
    ForEachOption(options, Visitor{*this, message, python, false, others});
    ExpectSeen(message, others);
  }

  // Checks that every field of the message, except the members of its kinds, is among `seen`.
  void ExpectSeen(const Descriptor& message, const std::set<std::string>& seen) {
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      Expect(field.real_containing_oneof() != nullptr || seen.contains(field.name()),
             std::string(kLists) + ": no list has field " + field.name() + " of message " + message.name());
    }
  }

  template <class Options>
  void CompareKinds(const std::string& what, const Descriptor& message) {
    const auto& kinds = *message.FindOneofByName("kind");
    Options options;
    std::set<std::string> names;
    for (const auto kind : EveryKind<decltype(options.kind)>()) {
      options.kind = kind;
      const std::string name(ToString(kind));
      names.insert(name);
      const FieldDescriptor* const field = message.FindFieldByName(name);
      std::string kind_of = what + " ";
      Expect(field != nullptr && field->containing_oneof() == &kinds,
             std::string(kMessages) + ": message " + message.name() + " has no " + kind_of.append(name));
      const std::string python = ClassOf(what, name);
      if constexpr (std::is_same_v<Options, OptimizerOptions>) CheckStates(kind, name);
      if (field == nullptr || python.empty()) continue;
      std::set<std::string> seen;
      const bool has_defaults = std::is_same_v<Options, OptimizerOptions>;
      ForEachConstant(options, Visitor{*this, *field->message_type(), python, has_defaults, seen});
      ExpectSeen(*field->message_type(), seen);
    }
    for (int i = 0; i < kinds.field_count(); ++i) {
      Expect(names.contains(kinds.field(i)->name()),
             std::string(kLists) + ": no " + what + " is " + kinds.field(i)->name());
    }
  }

  // A table without an admission has no message that says so.
  void CompareAdmission(AdmissionKind kind) {
    if (kind == AdmissionKind::kNone) return;
    const std::string name(ToString(kind));
    const FieldDescriptor* const field = v1::Admission::descriptor()->FindFieldByName(name);
    Expect(field != nullptr && field->containing_oneof() != nullptr,
           std::string(kMessages) + ": message Admission has no kind " + name);
    if (field == nullptr) return;
    const Descriptor& message = *field->message_type();
    const AdmissionOptions options{.kind = kind};
    const std::string python = ClassIn(options_, "options.py", message.name());
    std::set<std::string> seen;
    ForEachConstant(options, Visitor{*this, message, python, false, seen});
    ForEachOption(options, Visitor{*this, *v1::Admission::descriptor(), python, false, seen});
    seen.erase("absent");
    ExpectSeen(message, seen);
  }

  // optimizers.py names the state's arrays: `"adam": ("m", "v"),`.
  void CheckStates(OptimizerKind kind, const std::string& name) {
    std::string states;
    for (const StateArray& state : StatesOf(kind))
      states += (states.empty() ? "\"" : " \"") + std::string(state.name) + "\",";
    if (StatesOf(kind).size() > 1) states.pop_back();  // only a tuple of one ends so
    Expect(optimizers_.find("\"" + name + "\": (" + states + "),") != std::string::npos,
           folder_ + "/optimizers.py: the states of " + name + " are not (" + states + ")");
    const std::size_t one = optimizers_.find("_ONE_FLOAT_A_ROW = (");
    const std::string those = optimizers_.substr(one, optimizers_.find(')', one) - one);
    Expect(
        KeepsOneFloatARow(kind) == (those.find("\"" + name + "\"") != std::string::npos),
        folder_ + "/optimizers.py: _ONE_FLOAT_A_ROW is not what " + std::string(kLists) + " has of " + name);
  }

  // Every value of the enumeration `is` is one more than its kind's number, because 0 means that the field is
  // absent.
  template <class Kind>
  void CompareEnum(const google::protobuf::EnumDescriptor& is, const std::string& prefix) {
    const std::string what = std::string(kMessages) + ": enum " + is.name() + " has ";
    const std::vector<Kind> kinds = EveryKind<Kind>();
    Expect(is.value_count() == static_cast<int>(kinds.size()) + 1,
           what + "a value that is not in " + std::string(kLists));
    for (const Kind kind : kinds) {
      std::string name = prefix;
      for (const char c : ToString(kind)) name += std::islower(c) != 0 ? static_cast<char>(c - 'a' + 'A') : c;
      const auto* const value = is.FindValueByName(name);
      std::string wrong = what + "no ";
      wrong.append(name).append(" of the number that ").append(kLists).append(" has, and one more");
      Expect(value != nullptr && value->number() == static_cast<int>(kind) + 1, wrong);
    }
  }

  // Checks that a constant's default in Python is the lists' default.
  void CompareDefault(const Option<float>& option, std::string_view python, const std::string& of) {
    const std::string_view line = python.substr(0, python.find('\n'));
    const std::size_t sign = line.find("= ");
    float value = -1;
    if (sign != std::string_view::npos)
      std::from_chars(line.data() + sign + 2, line.data() + line.size(), value);
    Expect(value == option.otherwise, folder_ + ": the class of message " + of + " has not the default of " +
                                          std::string(option.name) + " that " + std::string(kLists) + " has");
  }

  std::string Read(const std::string& file) {
    std::ifstream in(folder_ + "/" + file);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    Expect(!text.empty(), folder_ + "/" + file + " cannot be read");
    return text;
  }

  std::string ClassIn(const std::string& text, const std::string& file, const std::string& name) {
    const std::size_t begin = text.find("\nclass " + name + ":\n");
    Expect(begin != std::string::npos, folder_ + "/" + file + ": there is no class " + name);
    return begin == std::string::npos ? "" : text.substr(begin, text.find("\n\n\n", begin) - begin + 1);
  }

  // Returns the source of the class that optimizers.py maps from a kind's name: `"adam": Adam`.
  std::string ClassOf(const std::string& what, const std::string& name) {
    const std::string key = "\"" + name + "\": ";
    const std::size_t at = optimizers_.find(key);
    Expect(at != std::string::npos, folder_ + "/optimizers.py: there is no " + what + " " + name);
    if (at == std::string::npos) return "";
    const std::size_t begin = at + key.size();
    const std::string of = optimizers_.substr(begin, optimizers_.find_first_of(",}", begin) - begin);
    Expect(package_.find("\n    " + of + ",\n") != std::string::npos,
           folder_ + "/__init__.py does not import " + of);
    return ClassIn(optimizers_, "optimizers.py", of);
  }

  void Expect(bool holds, const std::string& otherwise) {
    if (holds) return;
    std::fprintf(stderr, "schema_check: %s\n", otherwise.c_str());
    good_ = false;
  }

  const std::string folder_;
  bool good_ = true;
  const std::string package_;
  const std::string optimizers_;
  const std::string options_;
  const std::string calls_;
};

}  // namespace
}  // namespace slotwise

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: schema_check client/python/slotwise\n");
    return 2;
  }
  return slotwise::Check(argv[1]).Run() ? 0 : 1;
}
