#include "client/ctl/saved_table.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/ctl/regular_file.h"
#include "wire/table_options_proto.h"

namespace slotwise::ctl {
namespace {

namespace fs = std::filesystem;

// A table.json may have so many objects in objects, as in protobuf's own parser.
constexpr int kMostDepth = 100;
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 62;  // as the server takes

// Reads table.json by its names, and keeps the first thing that is wrong.
class SaidFields {
 public:
  SaidFields(const fs::path& path, const nlohmann::json& said) : path_(path.string()), said_(said) {}

  std::uint64_t Count(const char* name, std::uint64_t most) {
    const nlohmann::json* const value = Find(name);
    if (value != nullptr && value->is_number_unsigned() && value->get<std::uint64_t>() <= most)
      return value->get<std::uint64_t>();
    Refuse(name, value, "a whole number from 0 to " + std::to_string(most));
    return 0;
  }
  // Returns 0 if there is none.
  float Rate(const char* name) {
    const nlohmann::json* const value = Find(name);
    if (value == nullptr) return 0;
    if (value->is_number()) {
      const auto rate = value->get<double>();
      if (const auto narrow = static_cast<float>(rate); rate > 0 && narrow > 0 && std::isfinite(narrow))
        return narrow;
    }
    Refuse(name, value, "finite and above 0");
    return 0;
  }
  std::optional<bool> Flag(const char* name) {
    const nlohmann::json* const value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    Refuse(name, value, "true or false");
    return std::nullopt;
  }
  TableOptions Options(const char* name, const std::string& table) {
    const nlohmann::json* const value = Find(name);
    if (value == nullptr || !value->is_object()) {
      Refuse(name, value, "an object");
      return {};
    }
    v1::TableOptions wire;
    const auto parsed = google::protobuf::util::JsonStringToMessage(value->dump(), &wire);
    if (!parsed.ok()) {
      Keep(path_ + ": " + std::string(parsed.message()));
      return {};
    }
    wire.set_name(table);
    auto options = FromProto(wire);
    if (options.ok()) return *std::move(options);
    Keep(path_ + ": " + options.status().message());
    return {};
  }

  const Status& status() const { return status_; }

 private:
  const nlohmann::json* Find(const char* name) const {
    const auto found = said_.find(name);
    return found == said_.end() ? nullptr : &*found;
  }
  void Keep(const std::string& why) {
    if (status_.ok()) status_ = InvalidArgument(why);
  }
  void Refuse(const char* name, const nlohmann::json* value, const std::string& wanted) {
    constexpr std::size_t kShown = 60;
    const std::string start = path_ + (value == nullptr ? " has no \"" : ": \"") + name + "\"";
    if (value == nullptr) return Keep(start + ": it must be " + wanted);
    std::string text = value->dump(-1, ' ', true);
    if (text.size() > kShown) text = text.substr(0, kShown) + "...";
    Keep(start + " is " + text + ": must be " + wanted);
  }

  const std::string path_;
  const nlohmann::json& said_;
  Status status_;
};

}  // namespace

Result<Saved> ReadSaved(const fs::path& path, const std::string& table) {
  const auto text = ReadOptionsFile(path);
  if (text.status().code() == StatusCode::kNotFound) return Saved{};
  if (!text.ok()) return text.status();
  bool deep = false;
  const auto shallow = [&deep](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    deep = deep || depth > kMostDepth;
    return !deep;
  };
  const auto said = nlohmann::json::parse(*text, shallow, false);
  if (deep || !said.is_object()) {
    return InvalidArgument(
        path.string() +
        (deep ? " has objects in objects, more than " + std::to_string(kMostDepth) : " is no JSON object"));
  }
  SaidFields fields(path, said);
  Saved saved{.there = true, .options = fields.Options("options", table)};
  saved.steps = fields.Count("steps", kMostSteps);
  saved.learning_rate = fields.Rate("learning_rate");
  saved.rows = fields.Count("rows", TableOptions::kMaxMaxRows);
  saved.with_state = fields.Flag("with_state");
  if (!fields.status().ok()) return fields.status();
  return saved;
}

}  // namespace slotwise::ctl
