// Translates TableOptions between the wire's message, where an absent field has a default, and Slotwise's own
// struct.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_
#define SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_

#include <google/protobuf/message.h>

#include <string_view>
#include <vector>

#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {

// Fills in the defaults that admin.proto names, and checks the options. INVALID_ARGUMENT names the field and
// its value.
Result<TableOptions> FromProto(const v1::TableOptions& wire);

// The same, with all errors in `errors`. If there are any, the options cannot make a table.
TableOptions FromProto(const v1::TableOptions& wire, std::vector<Status>& errors);

// Reads what a request alters. The options that result are checked where the table is known.
// INVALID_ARGUMENT names the field, and says also if nothing is given.
Result<TableAlteration> FromProto(const v1::AlterTableRequest& wire);
v1::AlterTableRequest ToProto(std::string_view table, const TableAlteration& alteration);

// Writes every field, defaults too, so that FromProto returns `options` again.
v1::TableOptions ToProto(const TableOptions& options);

// Visits options (table_options.h) and writes each one's value into a message. Every option has a field
// there: schema_check.cc checks that.
class OptionWriter {
 public:
  explicit OptionWriter(google::protobuf::Message& to) : to_(to) {}

  // T: float, bool, std::uint32_t, std::uint64_t or Combiner.
  template <class T>
  void operator()(const Option<T>& option, const T& value) const;

 private:
  google::protobuf::Message& to_;
};

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_
