#include "client/ctl/saved_table.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/ctl/regular_file.h"
#include "wire/json.h"
#include "wire/table_options_proto.h"

namespace slotwise::ctl {
namespace {

namespace fs = std::filesystem;

// The largest depth of objects in a table.json, as in protobuf's own parser.
constexpr int kMostDepth = 100;
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 62;  // the server's own bound

Result<TableOptions> ParseOptions(const std::string& text, const std::string& table) {
  v1::TableOptions wire;
  if (Status parsed = FromJson(text, wire); !parsed.ok()) return parsed;
  wire.set_name(table);
  return FromProto(wire);
}

// Reads the fields of table.json, some of which are optional, and keeps the first error.
std::string ReadFields(const nlohmann::json& said, const std::string& table, Saved& saved) {
  std::string error;
  const auto read = [&](const char* name, bool may_be_out, const std::string& wanted, const auto& take) {
    const auto value = said.find(name);
    const bool there = value != said.end();
    if (!error.empty() || (there ? take(*value) : may_be_out)) return;
    constexpr std::size_t kShown = 60;
    std::string shown = there ? value->dump(-1, ' ', true) : "";
    if (shown.size() > kShown) shown = shown.substr(0, kShown) + "...";
    error = (there ? ": \"" : " has no \"") + std::string(name) + "\"" +
            (there ? " is " + shown + ": must be " : ": it must be ") + wanted;
  };
  const auto read_count = [&](const char* name, std::uint64_t& count, std::uint64_t most) {
    read(name, false, "a whole number from 0 to " + std::to_string(most), [&](const nlohmann::json& value) {
      count = value.is_number_unsigned() ? value.get<std::uint64_t>() : most + 1;
      return count <= most;
    });
  };
  read("options", false, "an object", [&](const nlohmann::json& value) {
    if (!value.is_object()) return false;
    const auto options = ParseOptions(value.dump(), table);
    if (options.ok()) saved.options = *options;
    if (!options.ok()) error = ": " + options.status().message();
    return true;
  });
  read_count("steps", saved.steps, kMostSteps);
  read("learning_rate", true, "finite and above 0", [&](const nlohmann::json& value) {
    saved.learning_rate = static_cast<float>(value.is_number() ? value.get<double>() : 0);
    return saved.learning_rate > 0 && std::isfinite(saved.learning_rate);
  });
  read_count("rows", saved.rows, TableOptions::kMaxMaxRows);
  read("with_state", true, "true or false", [&](const nlohmann::json& value) {
    if (value.is_boolean()) saved.with_state = value.get<bool>();
    return value.is_boolean();
  });
  return error;
}

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
  Saved saved{.there = true};
  const std::string error = ReadFields(said, table, saved);
  if (!error.empty()) return InvalidArgument(path.string() + error);
  return saved;
}

}  // namespace slotwise::ctl
