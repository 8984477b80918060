#include "client/ctl/options.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <vector>

#include "client/ctl/regular_file.h"

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

// Merges `text` into `message`. Errors name `source`. Refuses text that sets a field twice, because the
// second value would silently replace the first.
Status Merge(const std::string& text, const std::string& source, google::protobuf::Message& message) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  const std::unique_ptr<google::protobuf::Message> said(message.New());
  if (!parser.ParseFromString(text, said.get())) return InvalidArgument(source + ":" + error.text());
  message.MergeFrom(*said);
  return {};
}

// Expands "adam", which is short for "adam {}".
std::string AsMessage(const std::string& text) {
  return text.find('{') == std::string::npos ? text + " {}" : text;
}

// Refuses a word that is not in `allowed`.
Status NoSuch(std::string_view flag, std::string_view word, const std::vector<std::string>& allowed) {
  std::string message = std::string(flag) + ": there is no \"" + std::string(word) + "\": must be ";
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (i > 0) message += i + 1 < allowed.size() ? ", " : " or ";
    message += allowed[i];
  }
  return InvalidArgument(message);
}

// Replaces the member of the oneof `kind` that `text` names: "adam", or "adam { beta1: 0.8 }".
Status SetKind(std::string_view flag, const std::string& text, google::protobuf::Message& message) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::OneofDescriptor& kind = *type.FindOneofByName("kind");
  const auto end =
      std::ranges::find_if_not(text, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  const std::string word(text.begin(), end);
  if (type.FindFieldByName(word) == nullptr) {
    std::vector<std::string> names;
    for (int i = 0; i < kind.field_count(); ++i) names.push_back(kind.field(i)->name());
    return NoSuch(flag, word.empty() ? text : word, names);
  }
  message.GetReflection()->ClearOneof(&message, &kind);
  return Merge(AsMessage(text), std::string(flag), message);
}

// Returns the value of an enumeration that is `prefix` and the word in capitals.
template <class Kind, class Parse>
Result<Kind> ValueNamed(std::string_view flag, std::string_view prefix, const std::string& word,
                        const Parse& parse, const std::vector<std::string>& allowed) {
  std::string value = std::string(prefix) + word;
  std::ranges::transform(value, value.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  Kind kind{};
  const bool is_allowed = std::ranges::find(allowed, word) != allowed.end();
  if (!is_allowed || !parse(value, &kind) || kind == Kind{}) return NoSuch(flag, word, allowed);
  return kind;
}

Status SetCombiner(const std::string& name, v1::TableOptions& options) {
  const auto combiner = ValueNamed<v1::Combiner>("--combiner", "COMBINER_", name, v1::Combiner_Parse,
                                                 {"sum", "mean", "sqrtn", "none"});
  if (combiner.ok()) options.set_combiner(*combiner);
  return combiner.status();
}

Status SetRowType(const CreateFlags& flags, v1::TableOptions& options) {
  if (!flags.row_dtype.empty()) {
    const auto type = ValueNamed<v1::DataType>("--row-dtype", "DATA_TYPE_", flags.row_dtype,
                                               v1::DataType_Parse, {"float32", "float16", "bfloat16"});
    if (!type.ok()) return type.status();
    options.set_row_dtype(*type);
  }
  if (flags.rounding.empty()) return {};
  const auto rounding = ValueNamed<v1::Rounding>("--rounding", "ROUNDING_", flags.rounding,
                                                 v1::Rounding_Parse, {"stochastic", "nearest"});
  if (rounding.ok()) options.set_rounding(*rounding);
  return rounding.status();
}

// Sets the eviction that `text` names: "step", or "step { to: 0.9 }".
Status SetEviction(const std::string& text, v1::TableOptions& options) {
  const std::size_t end = std::min(text.find_first_of(" {"), text.size());
  const auto score = ValueNamed<v1::Score>("--eviction", "SCORE_", text.substr(0, end), v1::Score_Parse,
                                           {"step", "lfu", "step_lfu"});
  if (!score.ok()) return score.status();
  options.mutable_eviction()->set_score(*score);
  Status merged = Merge("eviction " + AsMessage(text.substr(end)), "--eviction", options);
  if (merged.ok() && options.eviction().score() != *score)
    return InvalidArgument("--eviction: the text names two scores: " + text);
  return merged;
}

}  // namespace

Result<TableOptions> OptionsOf(const CreateFlags& flags) {
  v1::TableOptions options;
  Status status;
  if (!flags.file.empty()) {
    const auto text = ReadOptionsFile(flags.file);
    if (!text.ok()) return InvalidArgument(text.status().message());
    status = Merge(*text, flags.file, options);
  }
  if (status.ok() && !flags.combiner.empty()) status = SetCombiner(flags.combiner, options);
  if (status.ok()) status = SetRowType(flags, options);
  if (status.ok() && !flags.optimizer.empty()) {
    status = SetKind("--optimizer", flags.optimizer, *options.mutable_optimizer());
  }
  if (status.ok() && !flags.eviction.empty()) status = SetEviction(flags.eviction, options);
  if (status.ok() && !flags.admission.empty()) {
    status = SetKind("--admission", flags.admission, *options.mutable_admission());
  }
  if (status.ok() && !flags.initializer.empty()) {
    status = SetKind("--initializer", flags.initializer, *options.mutable_initializer());
  }
  if (!status.ok()) return status;
  if (!flags.name.empty()) options.set_name(flags.name);
  for (const auto& set : flags.set) set(options);
  return FromProto(options);
}

Result<TableAlteration> AlterationOf(const AlterFlags& flags) {
  constexpr std::string_view kNone = "none";
  v1::AlterTableRequest request;
  if (flags.max_rows) request.set_max_rows(*flags.max_rows);
  if (flags.ttl_steps) request.set_ttl_steps(*flags.ttl_steps);
  if (flags.ttl_seconds) request.set_ttl_seconds(*flags.ttl_seconds);
  if (flags.eviction == kNone) {
    request.set_no_eviction(true);
  } else if (!flags.eviction.empty()) {
    v1::TableOptions options;
    if (Status status = SetEviction(flags.eviction, options); !status.ok()) return status;
    *request.mutable_eviction() = options.eviction();
  }
  if (flags.admission == kNone) {
    request.set_no_admission(true);
  } else if (!flags.admission.empty()) {
    if (Status status = SetKind("--admission", flags.admission, *request.mutable_admission()); !status.ok())
      return status;
  }
  return FromProto(request);
}

}  // namespace slotwise::ctl
