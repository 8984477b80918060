#include "server/ops/config_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using google::protobuf::io::Tokenizer;

constexpr int kMostDepth = 64;            // of nested messages; the schema has five
constexpr std::size_t kMostParses = 100;  // each finds one error
constexpr std::string_view kLegal = "1";  // legal in every field that takes a name: true, and an enum's first

struct Position {
  int line = 0;  // counted from 0, as in protobuf
  int column = 0;
};

// Keeps the parser's first error.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = message;
    at_ = {line, column};
  }
  const std::string& text() const { return text_; }
  Position at() const { return at_; }

 private:
  std::string text_;
  Position at_;
};

class NoErrors final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int /*line*/, int /*column*/, const std::string& /*message*/) override {}
};

// Walks forward through a text to the places that protobuf names.
class Cursor {
 public:
  explicit Cursor(const std::string& text) : text_(text) {}

  std::size_t To(Position to) {
    constexpr int kTab = 8;  // protobuf's columns continue at its next multiple
    while (at_ < text_.size() &&
           (here_.line < to.line || (here_.line == to.line && here_.column < to.column))) {
      const char c = text_[at_++];
      if (c == '\n') {
        here_ = {here_.line + 1, 0};
      } else {
        here_.column += c == '\t' ? kTab - here_.column % kTab : 1;
      }
    }
    return at_;
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
  Position here_;
};

// A field with its value, and the comma or semicolon after it.
struct Statement {
  std::size_t begin;
  std::size_t end;
};

ConfigPlace PlaceOf(const std::string& file, Position at) {
  return {.source = file, .line = at.line + 1, .column = at.column + 1};
}

// Walks through the fields of a text as the parser will, and repairs errors that the parser would report
// without the legal names: unknown fields, and unknown names of values. Any other error ends the walk, and
// the parser reports it.
class Walk {
 public:
  Walk(const std::string& text, const std::string& file, ConfigErrors& errors)
      : file_(file),
        errors_(errors),
        mended_(text),
        input_(text.data(), static_cast<int>(text.size())),
        tokens_(&input_, &no_errors_),
        cursor_(text) {
    tokens_.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokens_.set_allow_f_after_float(true);
    tokens_.set_require_space_after_number(false);
    Next();
    Fields(v1::ServerConfig::descriptor(), "", "", 0);
  }

  // Returns the text without the errors; the rest has the same line and column as before.
  const std::string& mended() const { return mended_; }

  // Removes the innermost statement around a place, and forgets all statements inside it. Returns false if
  // there is none.
  bool TakeOut(std::size_t at) {
    const auto inner = std::ranges::find_if(  // inner statements come first, because they end first
        statements_, [at](const Statement& one) { return one.begin <= at && at < one.end; });
    if (inner == statements_.end()) return false;
    const Statement out = *inner;
    Replace(out, "");
    std::erase_if(statements_,
                  [&](const Statement& one) { return out.begin <= one.begin && one.end <= out.end; });
    return true;
  }

 private:
  const Tokenizer::Token& token() { return tokens_.current(); }
  bool At(std::string_view text) { return token().text == text && token().type != Tokenizer::TYPE_STRING; }
  std::size_t End() { return begin_ + token().text.size(); }
  ConfigPlace Place() { return PlaceOf(file_, {token().line, token().column}); }

  void Next() {
    last_end_ = End();
    tokens_.Next();
    begin_ = cursor_.To({token().line, token().column});
  }

  // Replaces a piece by `by` and blanks, so that the rest keeps its line and column. REQUIRES: `by` is not
  // longer than the piece.
  void Replace(const Statement& piece, std::string_view by) {
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      const std::size_t nth = i - piece.begin;
      if (nth < by.size()) {
        mended_[i] = by[nth];
      } else if (mended_[i] != '\n' && mended_[i] != '\t') {
        mended_[i] = ' ';
      }
    }
  }

  // Reads fields up to `closer`, or to the end if it is empty. Returns false if the text does not have that
  // form. `message` is null inside an unknown field.
  bool Fields(const Descriptor* message, const std::string& path, std::string_view closer, int depth) {
    std::map<std::string, int> seen;
    const auto ends = [&] { return closer.empty() ? token().type == Tokenizer::TYPE_END : At(closer); };
    while (!ends()) {
      if (token().type != Tokenizer::TYPE_IDENTIFIER || depth > kMostDepth) return false;
      const std::size_t begin = begin_;
      const std::string name = token().text;
      const FieldDescriptor* const field = message == nullptr ? nullptr : message->FindFieldByName(name);
      const bool is_none = message != nullptr && field == nullptr && !message->IsReservedName(name);
      if (is_none) {
        errors_.Add(Place(), path.empty() ? "there is no field " + name
                                          : path.substr(0, path.size() - 1) + " has no field " + name);
      }
      Next();
      if (At(":")) Next();
      if (!Values(field, path + name, seen[name], depth)) return false;
      if (At(";") || At(",")) Next();
      const Statement whole{begin, last_end_};
      if (is_none) {
        Replace(whole, "");
      } else if (message != nullptr) {
        statements_.push_back(whole);
      }
    }
    return true;
  }

  // Reads a value or a list of values.
  bool Values(const FieldDescriptor* field, const std::string& path, int& count, int depth) {
    if (!At("[")) return Value(field, path, count++, depth);
    Next();
    while (!At("]")) {
      if (!Value(field, path, count++, depth)) return false;
      if (At(",")) Next();
    }
    Next();
    return true;
  }

  bool Value(const FieldDescriptor* field, const std::string& path, int index, int depth) {
    for (const auto& [opener, closer] : {std::pair("{", "}"), std::pair("<", ">")}) {
      if (!At(opener)) continue;
      Next();
      const std::string number =
          field != nullptr && field->is_repeated() ? "[" + std::to_string(index) + "]" : "";
      const Descriptor* const inner = field == nullptr ? nullptr : field->message_type();
      if (!Fields(inner, path + number + ".", closer, depth + 1)) return false;
      Next();
      return true;
    }
    if (At("-")) Next();
    switch (token().type) {
      case Tokenizer::TYPE_IDENTIFIER:
        if (field != nullptr) CheckName(*field, path);
        [[fallthrough]];
      case Tokenizer::TYPE_INTEGER:
      case Tokenizer::TYPE_FLOAT:
        Next();
        return true;
      case Tokenizer::TYPE_STRING:
        while (token().type == Tokenizer::TYPE_STRING) Next();
        return true;
      default:
        return false;
    }
  }

  void CheckName(const FieldDescriptor& field, const std::string& path) {
    constexpr std::array<std::string_view, 6> kBools{"true", "t", "True", "false", "f", "False"};
    const google::protobuf::EnumDescriptor* const type = field.enum_type();
    std::string legal;
    if (type != nullptr && type->FindValueByName(token().text) == nullptr) legal = LegalNames(*type);
    if (field.type() == FieldDescriptor::TYPE_BOOL && std::ranges::count(kBools, token().text) == 0)
      legal = "true or false";
    if (legal.empty()) return;
    errors_.Add(Place(), path + " is " + token().text + ": must be " + legal);
    Replace({begin_, End()}, kLegal);
  }

  const std::string& file_;
  ConfigErrors& errors_;
  std::string mended_;
  std::vector<Statement> statements_;  // of known fields that were not removed
  google::protobuf::io::ArrayInputStream input_;
  NoErrors no_errors_;
  Tokenizer tokens_;
  Cursor cursor_;
  std::size_t begin_ = 0;     // of the present token
  std::size_t last_end_ = 0;  // of the token before it
};

}  // namespace

std::shared_ptr<const ConfigPlaces::Tree> ParseConfigText(const std::string& text, const std::string& file,
                                                          v1::ServerConfig& values, ConfigErrors& errors) {
  Walk walk(text, file, errors);
  for (std::size_t parses = 1;; ++parses) {
    auto tree = std::make_shared<ConfigPlaces::Tree>();
    FirstError error;
    TextFormat::Parser parser;
    parser.RecordErrorsTo(&error);
    parser.WriteLocationsTo(tree.get());
    if (parser.ParseFromString(walk.mended(), &values)) return tree;
    const ConfigPlace place = PlaceOf(file, error.at());
    errors.Add(place, error.text());
    if (!walk.TakeOut(Cursor(text).To(error.at()))) break;
    if (parses == kMostParses) {
      errors.Add(place, "there is more that is wrong");
      break;
    }
  }
  values.Clear();
  return nullptr;
}

std::string LegalNames(const google::protobuf::EnumDescriptor& type) {
  std::string names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() == 0) continue;
    if (!names.empty()) names += i + 1 == type.value_count() ? " or " : ", ";
    names += type.value(i)->name();
  }
  return names;
}

}  // namespace slotwise
