// Builds a table's options from flags and from files in protobuf's text format. Flags can set every option of
// admin.proto.
// Thread-safety: plain values and free functions.
#ifndef SLOTWISE_CLIENT_CTL_OPTIONS_H_
#define SLOTWISE_CLIENT_CTL_OPTIONS_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/v1/admin.pb.h"
#include "wire/table_options_proto.h"

namespace slotwise::ctl {

struct CreateFlags {
  std::string name = {};
  std::string file = {};         // a .pbtxt of TableOptions, which the flags below change; empty: no file
  std::string combiner = {};     // "sum"
  std::string row_dtype = {};    // "bfloat16"
  std::string rounding = {};     // "nearest"
  std::string optimizer = {};    // "adam", or "adam { beta1: 0.8 }"
  std::string eviction = {};     // "step", or "step { to: 0.9 }"
  std::string admission = {};    // "frequency { threshold: 3 }"
  std::string initializer = {};  // "uniform { low: -0.1 high: 0.1 }"
  // One function for each other flag. It sets an option of the table, of its optimizer or of its initializer.
  std::vector<std::function<void(v1::TableOptions&)>> set = {};
};

struct AlterFlags {
  std::optional<std::uint64_t> max_rows = {};
  std::optional<std::uint64_t> ttl_steps = {};
  std::optional<std::uint64_t> ttl_seconds = {};
  std::string eviction = {};   // as in CreateFlags, or "none"; empty: as it is
  std::string admission = {};  // the same
};

// Calls add(option, set) for every numeric option. `set(options, value)` writes the value into the message.
template <class Add>
void ForEachFlag(const Add& add) {
  TableOptions table;
  const auto visit = [&add](auto part) {
    return [&add, part]<class T>(const Option<T>& option, const T& /*value*/) {
      if constexpr (std::is_arithmetic_v<T>) {
        add(option, [option, part](v1::TableOptions& options, T value) {
          OptionWriter(part(options))(option, value);
        });
      }
    };
  };
  ForEachOption(table, visit([](v1::TableOptions& o) -> google::protobuf::Message& { return o; }));
  ForEachOption(table.optimizer, visit([](v1::TableOptions& o) -> google::protobuf::Message& {
                  return *o.mutable_optimizer();
                }));
  ForEachOption(table.initializer, visit([](v1::TableOptions& o) -> google::protobuf::Message& {
                  return *o.mutable_initializer();
                }));
}

// Returns INVALID_ARGUMENT, with the flag or the file and line, if the flags do not give valid options.
Result<TableOptions> OptionsOf(const CreateFlags& flags);
// Returns INVALID_ARGUMENT, with the flag, if the flags do not say an alteration.
Result<TableAlteration> AlterationOf(const AlterFlags& flags);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_OPTIONS_H_
