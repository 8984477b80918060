#include "wire/table_options_proto.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slotwise/table_errors.h"

namespace slotwise {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;

// Throws std::logic_error if there is no such field; schema_check.cc finds that when Slotwise is built.
const FieldDescriptor& FieldOf(const Message& message, std::string_view name) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(std::string(name));
  if (field == nullptr) {
    throw std::logic_error("message " + message.GetDescriptor()->name() + " has no field " +
                           std::string(name));
  }
  return *field;
}

const OneofDescriptor& KindOf(const Message& message) {
  return *message.GetDescriptor()->FindOneofByName("kind");
}

// A combiner's number in messages is one more than its own, because 0 means that the field is absent. Scores
// have their own numbers: a table without scores has no message that says so.
int NumberOf(Combiner combiner) { return static_cast<int>(combiner) + 1; }
int NumberOf(ScoreKind score) { return static_cast<int>(score); }
int NumberOf(AbsentRows absent) { return static_cast<int>(absent) + 1; }
int NumberOf(DataType type) { return static_cast<int>(type) + 1; }
int NumberOf(CounterKind counter) { return static_cast<int>(counter) + 1; }
int NumberOf(Rounding rounding) { return static_cast<int>(rounding) + 1; }

// Returns the kind that has a number in messages, or `otherwise` if none has.
template <class T>
T KindOfNumber(int number, T otherwise) {
  for (const T kind : EveryKind<T>()) {
    if (NumberOf(kind) == number) return kind;
  }
  return otherwise;
}

// Visits options and reads each one's value from a message. An absent field has its default.
class Reader {
 public:
  explicit Reader(const Message& from) : from_(from) {}

  template <class T>
  void operator()(const Option<T>& option, T& value) const {
    const FieldDescriptor& field = FieldOf(from_, option.name);
    const auto& reflection = *from_.GetReflection();
    if (!reflection.HasField(from_, &field)) {
      value = option.otherwise;
    } else if constexpr (std::is_same_v<T, float>) {
      value = reflection.GetFloat(from_, &field);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = reflection.GetBool(from_, &field);
    } else if constexpr (std::is_same_v<T, std::uint32_t>) {
      value = reflection.GetUInt32(from_, &field);
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      value = reflection.GetUInt64(from_, &field);
    } else {
      value = KindOfNumber<T>(reflection.GetEnumValue(from_, &field), option.otherwise);
    }
  }

 private:
  const Message& from_;
};

// Reads the member of the oneof `kind` of a message, if one is set.
template <class Options>
void ReadKind(const Message& from, Options& options) {
  const FieldDescriptor* const field = from.GetReflection()->GetOneofFieldDescriptor(from, &KindOf(from));
  if (field == nullptr) return;
  for (const auto kind : EveryKind<decltype(options.kind)>()) {
    if (ToString(kind) == field->name()) options.kind = kind;
  }
  ForEachConstant(options, Reader(from.GetReflection()->GetMessage(from, field)));
}

template <class Options>
void WriteKind(const Options& options, Message& to) {
  ForEachConstant(
      options, OptionWriter(*to.GetReflection()->MutableMessage(&to, &FieldOf(to, ToString(options.kind)))));
}

// Returns the refusal of a number that names no kind in `kinds`.
template <class Kind>
Status NoSuchKind(const std::string& field, int number, const std::vector<Kind>& kinds) {
  std::string message = field + " is " + std::to_string(number) + ": must be ";
  for (const Kind kind : kinds) {
    if (kind != kinds.front()) message += kind == kinds.back() ? " or " : ", ";
    message += std::to_string(NumberOf(kind)) + " (" + std::string(ToString(kind)) + ")";
  }
  return InvalidArgument(message);
}

}  // namespace

template <class T>
void OptionWriter::operator()(const Option<T>& option, const T& value) const {
  const FieldDescriptor& field = FieldOf(to_, option.name);
  const auto& reflection = *to_.GetReflection();
  if constexpr (std::is_same_v<T, float>) {
    reflection.SetFloat(&to_, &field, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    reflection.SetBool(&to_, &field, value);
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {
    reflection.SetUInt32(&to_, &field, value);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    reflection.SetUInt64(&to_, &field, value);
  } else {
    reflection.SetEnumValue(&to_, &field, NumberOf(value));
  }
}
template void OptionWriter::operator()(const Option<float>&, const float&) const;
template void OptionWriter::operator()(const Option<bool>&, const bool&) const;
template void OptionWriter::operator()(const Option<std::uint32_t>&, const std::uint32_t&) const;
template void OptionWriter::operator()(const Option<std::uint64_t>&, const std::uint64_t&) const;
template void OptionWriter::operator()(const Option<Combiner>&, const Combiner&) const;
template void OptionWriter::operator()(const Option<ScoreKind>&, const ScoreKind&) const;
template void OptionWriter::operator()(const Option<AbsentRows>&, const AbsentRows&) const;
template void OptionWriter::operator()(const Option<CounterKind>&, const CounterKind&) const;
template void OptionWriter::operator()(const Option<DataType>&, const DataType&) const;
template void OptionWriter::operator()(const Option<Rounding>&, const Rounding&) const;

namespace {

EvictionOptions EvictionIn(const v1::Eviction& wire, std::vector<Status>& errors) {
  EvictionOptions eviction;
  ForEachOption(eviction, Reader(wire));
  if (!v1::Score_IsValid(wire.score())) {
    std::vector<ScoreKind> scores = EveryKind<ScoreKind>();
    std::erase(scores, ScoreKind::kNone);
    errors.push_back(NoSuchKind("eviction.score", wire.score(), scores));
  }
  return eviction;
}

AdmissionOptions AdmissionIn(const v1::Admission& wire, std::vector<Status>& errors) {
  AdmissionOptions admission;
  ForEachOption(admission, Reader(wire));
  ReadKind(wire, admission);
  if (!v1::AbsentRows_IsValid(wire.absent()))
    errors.push_back(NoSuchKind("admission.absent", wire.absent(), EveryKind<AbsentRows>()));
  if (!v1::Counter_IsValid(wire.frequency().counter()))
    errors.push_back(NoSuchKind("admission.counter", wire.frequency().counter(), EveryKind<CounterKind>()));
  if (admission.kind == AdmissionKind::kNone)
    errors.push_back(InvalidArgument("admission has no kind: must be frequency or probability"));
  return admission;
}

void WriteEviction(const EvictionOptions& eviction, v1::Eviction& to) {
  ForEachOption(eviction, OptionWriter(to));
}

void WriteAdmission(const AdmissionOptions& admission, v1::Admission& to) {
  ForEachOption(admission, OptionWriter(to));
  WriteKind(admission, to);
}

// Refuses a flag that takes an option away if it is false.
Status MustBeTrue(std::string_view field, bool is_true) {
  return is_true ? Status() : InvalidArgument(std::string(field) + " is false: must be true");
}

}  // namespace

TableOptions FromProto(const v1::TableOptions& wire, std::vector<Status>& errors) {
  TableOptions options;
  options.name = TableName(wire.name());
  ForEachOption(options, Reader(wire));
  if (!v1::Combiner_IsValid(wire.combiner()))
    errors.push_back(NoSuchKind("combiner", wire.combiner(), EveryKind<Combiner>()));
  if (!v1::DataType_IsValid(wire.row_dtype()))
    errors.push_back(NoSuchKind("row_dtype", wire.row_dtype(), EveryKind<DataType>()));
  if (!v1::Rounding_IsValid(wire.rounding()))
    errors.push_back(NoSuchKind("rounding", wire.rounding(), EveryKind<Rounding>()));
  if (wire.has_eviction()) options.eviction = EvictionIn(wire.eviction(), errors);
  if (wire.has_admission()) options.admission = AdmissionIn(wire.admission(), errors);
  ForEachOption(options.optimizer, Reader(wire.optimizer()));
  ForEachOption(options.optimizer.schedule, Reader(wire.optimizer().schedule()));
  ReadKind(wire.optimizer(), options.optimizer);
  ForEachOption(options.initializer, Reader(wire.initializer()));
  ReadKind(wire.initializer(), options.initializer);
  for (Status& error : ErrorsIn(options)) errors.push_back(std::move(error));
  // Candidates' tables have such names, and clients' have not.
  if (IsOfCandidates(wire.name())) errors.push_back(ValidateTableName(wire.name()));
  return options;
}

Result<TableOptions> FromProto(const v1::TableOptions& wire) {
  std::vector<Status> errors;
  const TableOptions options = FromProto(wire, errors);
  if (!errors.empty()) return errors.front();
  return options;
}

Result<TableAlteration> FromProto(const v1::AlterTableRequest& wire) {
  using Wire = v1::AlterTableRequest;
  TableAlteration alteration;
  std::vector<Status> errors;
  if (wire.has_max_rows()) alteration.max_rows = wire.max_rows();
  if (wire.has_ttl_steps()) alteration.ttl_steps = wire.ttl_steps();
  if (wire.has_ttl_seconds()) alteration.ttl_seconds = wire.ttl_seconds();
  if (wire.eviction_is_case() == Wire::kEviction) alteration.eviction = EvictionIn(wire.eviction(), errors);
  if (wire.eviction_is_case() == Wire::kNoEviction) {
    alteration.eviction.emplace();
    errors.push_back(MustBeTrue("no_eviction", wire.no_eviction()));
  }
  if (wire.admission_is_case() == Wire::kAdmission)
    alteration.admission = AdmissionIn(wire.admission(), errors);
  if (wire.admission_is_case() == Wire::kNoAdmission) {
    alteration.admission.emplace();
    errors.push_back(MustBeTrue("no_admission", wire.no_admission()));
  }
  if (alteration == TableAlteration{}) {
    errors.push_back(InvalidArgument(
        "nothing is to be altered: give max_rows, eviction, ttl_steps, ttl_seconds or admission"));
  }
  for (Status& error : errors) {
    if (!error.ok()) return std::move(error);
  }
  return alteration;
}

v1::AlterTableRequest ToProto(std::string_view table, const TableAlteration& alteration) {
  v1::AlterTableRequest wire;
  wire.set_table(std::string(table));
  if (alteration.max_rows) wire.set_max_rows(*alteration.max_rows);
  if (alteration.ttl_steps) wire.set_ttl_steps(*alteration.ttl_steps);
  if (alteration.ttl_seconds) wire.set_ttl_seconds(*alteration.ttl_seconds);
  if (const auto& eviction = alteration.eviction) {
    eviction->score == ScoreKind::kNone ? wire.set_no_eviction(true)
                                        : WriteEviction(*eviction, *wire.mutable_eviction());
  }
  if (const auto& admission = alteration.admission) {
    admission->kind == AdmissionKind::kNone ? wire.set_no_admission(true)
                                            : WriteAdmission(*admission, *wire.mutable_admission());
  }
  return wire;
}

v1::TableOptions ToProto(const TableOptions& options) {
  v1::TableOptions wire;
  wire.set_name(options.name.str());
  ForEachOption(options, OptionWriter(wire));
  if (options.evicts()) WriteEviction(options.eviction, *wire.mutable_eviction());
  if (options.admits()) WriteAdmission(options.admission, *wire.mutable_admission());
  ForEachOption(options.optimizer, OptionWriter(*wire.mutable_optimizer()));
  const ScheduleOptions& schedule = options.optimizer.schedule;
  if (schedule != ScheduleOptions{})
    ForEachOption(schedule, OptionWriter(*wire.mutable_optimizer()->mutable_schedule()));
  WriteKind(options.optimizer, *wire.mutable_optimizer());
  ForEachOption(options.initializer, OptionWriter(*wire.mutable_initializer()));
  WriteKind(options.initializer, *wire.mutable_initializer());
  return wire;
}

}  // namespace slotwise
