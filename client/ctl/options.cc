#include "client/ctl/options.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include "wire/table_options_proto.h"

namespace slotwise::ctl {
namespace {

// Keeps the first error of a parse. Protobuf counts lines and columns from 0.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text_.empty()) text_ = std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " + message;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Merges `text` into `message`. Errors name `source`.
Status Merge(const std::string& text, const std::string& source, google::protobuf::Message& message) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.MergeFromString(text, &message)) return {};
  return InvalidArgument(source + ":" + error.text());
}

// Expands "adam", which is short for "adam {}".
std::string AsMessage(const std::string& text) {
  return text.find('{') == std::string::npos ? text + " {}" : text;
}

Status SetCombiner(const std::string& name, v1::TableOptions& options) {
  std::string value = "COMBINER_" + name;
  std::ranges::transform(value, value.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  v1::Combiner combiner = v1::COMBINER_UNSPECIFIED;
  if (!v1::Combiner_Parse(value, &combiner))
    return InvalidArgument("--combiner: there is no \"" + name + "\"");
  options.set_combiner(combiner);
  return {};
}

}  // namespace

Result<TableOptions> OptionsOf(const CreateFlags& flags) {
  v1::TableOptions options;
  Status status;
  if (!flags.file.empty()) {
    std::ifstream file(flags.file);
    if (!file) return InvalidArgument("cannot read " + flags.file);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    status = Merge(text, flags.file, options);
  }
  if (status.ok() && !flags.combiner.empty()) status = SetCombiner(flags.combiner, options);
  if (status.ok() && !flags.optimizer.empty()) {
    options.mutable_optimizer()->clear_kind();
    status = Merge(AsMessage(flags.optimizer), "--optimizer", *options.mutable_optimizer());
  }
  if (status.ok() && !flags.initializer.empty()) {
    options.mutable_initializer()->clear_kind();
    status = Merge(AsMessage(flags.initializer), "--initializer", *options.mutable_initializer());
  }
  if (!status.ok()) return status;
  if (!flags.name.empty()) options.set_name(flags.name);
  if (flags.dim) options.set_dim(*flags.dim);
  if (flags.slots) options.set_slots(*flags.slots);
  if (flags.learning_rate) options.mutable_optimizer()->set_learning_rate(*flags.learning_rate);
  if (flags.seed) options.mutable_initializer()->set_seed(*flags.seed);
  if (flags.initial_rows) options.set_initial_rows(*flags.initial_rows);
  if (flags.max_rows) options.set_max_rows(*flags.max_rows);
  if (flags.max_load) options.set_max_load(*flags.max_load);
  return FromProto(options);
}

}  // namespace slotwise::ctl
