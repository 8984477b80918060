#include "client/ctl/table_folder.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "client/ctl/npy.h"
#include "wire/table_options_proto.h"

namespace slotwise::ctl {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kKeys = "keys.npy";
constexpr const char* kValues = "values.npy";
constexpr const char* kState = "state.npy";
constexpr const char* kTable = "table.json";
constexpr std::uint64_t kPieceBytes = 16 << 20;

// Returns true if replacing the folder loses nothing but a saved table.
bool IsOursOrEmpty(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  const bool holds_keys = names.erase(kKeys) > 0;
  for (const char* name : {kValues, kState, kTable}) names.erase(name);
  return names.empty() && (holds_keys || fs::is_empty(folder));
}

// A folder beside `target`, removed at the end unless it was renamed.
class FolderBeside {
 public:
  FolderBeside(const fs::path& target, const char* what)
      : path_(target.parent_path() / ("." + target.filename().string() + what + std::to_string(getpid()))) {
    fs::remove_all(path_);
  }
  ~FolderBeside() {
    std::error_code nobody_to_tell;
    fs::remove_all(path_, nobody_to_tell);
  }
  FolderBeside(const FolderBeside&) = delete;
  FolderBeside& operator=(const FolderBeside&) = delete;

  const fs::path& path() const { return path_; }

 private:
  const fs::path path_;
};

Status WriteFiles(Client& client, const TableDescription& info, const fs::path& folder, bool with_state,
                  std::uint64_t& rows) {
  const TableOptions& options = info.options;
  NpyWriter keys(folder / kKeys, "<u8", std::nullopt);
  NpyWriter values(folder / kValues, "<f4", options.dim);
  std::optional<NpyWriter> state;
  if (with_state) state.emplace(folder / kState, "<f4", StateFloats(options.optimizer.kind, options.dim));
  auto exported = client.Export(options.name.view(), with_state);
  if (!exported.ok()) return exported.status();
  for (;;) {
    const auto some = exported->Next();
    if (!some.ok()) return some.status();
    if (!*some) break;
    const RowsView& chunk = **some;
    keys.Append(chunk.keys.size(), std::as_bytes(chunk.keys));
    values.Append(chunk.keys.size(), std::as_bytes(chunk.values));
    if (state) state->Append(chunk.keys.size(), std::as_bytes(chunk.state));
  }
  rows = keys.rows();
  ordered_json said{{"options", ToJson(options)}, {"steps", info.steps}};
  // 0 comes from a server that does not say.
  const float base = info.base_learning_rate;
  if (base != 0 && base != options.optimizer.learning_rate) said["learning_rate"] = base;
  said["with_state"] = with_state;
  said["rows"] = rows;
  std::ofstream json(folder / kTable);
  json << said.dump(2) << "\n";
  json.close();
  if (!json) return Unavailable("cannot write " + (folder / kTable).string());
  if (Status status = keys.Close(); !status.ok()) return status;
  if (Status status = values.Close(); !status.ok()) return status;
  return state ? state->Close() : Status();
}

// Parses table.json. Returns a value that is not an object if there is no valid file.
nlohmann::json ParseTableJson(const fs::path& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return nlohmann::json::parse(text, nullptr, false);
}

// Returns the count of steps that the saved state belongs to, or 0 if there is none.
std::uint64_t SavedSteps(const nlohmann::json& said) {
  return said.is_object() && said.contains("steps") && said["steps"].is_number_unsigned()
             ? said["steps"].get<std::uint64_t>()
             : 0;
}

// Returns the learning rate that the saved table had been set to, or 0 if there is none.
float SavedRate(const nlohmann::json& said) {
  return said.is_object() && said.contains("learning_rate") && said["learning_rate"].is_number()
             ? said["learning_rate"].get<float>()
             : 0.0F;
}

bool HasOptions(const nlohmann::json& said) { return said.is_object() && said.contains("options"); }

// REQUIRES: HasOptions(said).
Result<TableOptions> SavedOptions(const nlohmann::json& said, const fs::path& path,
                                  const std::string& table) {
  v1::TableOptions wire;
  const auto parsed = google::protobuf::util::JsonStringToMessage(said["options"].dump(), &wire);
  if (!parsed.ok()) return InvalidArgument(path.string() + ": " + std::string(parsed.message()));
  wire.set_name(table);
  return FromProto(wire);
}

struct Target {
  TableOptions options;
  std::uint64_t steps = 0;
  bool made = false;
};

// Finds the table, or makes it as it was saved.
Result<Target> FindOrMake(Client& client, const std::string& table, const nlohmann::json& said,
                          const fs::path& path) {
  const auto described = client.DescribeTable(table);
  if (described.ok()) return Target{described->options, described->steps, false};
  if (described.status().code() != StatusCode::kNotFound) return described.status();
  if (!HasOptions(said)) {
    return NotFound("there is no table \"" + table + "\", and no " + path.string() + " to make it by");
  }
  const auto options = SavedOptions(said, path, table);
  if (!options.ok()) return options.status();
  const auto created = client.CreateTable(*options);
  if (!created.ok()) return created.status();
  return Target{created->options, 0, true};
}

// State means something to the optimizer alone that has made it.
Status CheckOptimizer(const TableOptions& ours, const nlohmann::json& said, const fs::path& path) {
  if (!HasOptions(said)) return {};  // another program's files
  const auto theirs = SavedOptions(said, path, ours.name.str());
  if (!theirs.ok()) return theirs.status();
  if (theirs->optimizer.kind == ours.optimizer.kind) return {};
  return InvalidArgument("the state was saved from a table of " +
                         std::string(ToString(theirs->optimizer.kind)) + ", and \"" + ours.name.str() +
                         "\" has " + std::string(ToString(ours.optimizer.kind)) +
                         ": import --without-state, and rows get the state of new rows");
}

// Returns what starts anew in a table whose rows came without state.
std::string WhatStartsAnew(const Target& target, const nlohmann::json& said, std::uint64_t rows,
                           const std::string& why) {
  const TableOptions& options = target.options;
  std::vector<std::string> anew;
  if (StateFloats(options.optimizer.kind, options.dim) > 0) {
    anew.push_back("the state of " + std::string(ToString(options.optimizer.kind)) + " starts anew in " +
                   std::to_string(rows) + " row(s)");
  }
  if (const std::uint64_t saved = SavedSteps(said); saved > target.steps) {
    anew.push_back("the count of steps stays " + std::to_string(target.steps) + ", and was " +
                   std::to_string(saved) + " in the saved table");
  }
  if (anew.empty()) return {};
  std::string text = "table " + options.name.str() + ": " + anew.front();
  if (anew.size() > 1) text += "; " + anew.back();
  return text + ": " + why;
}

template <class T>
Status Read(NpyReader& from, std::vector<T>& to, std::size_t size) {
  to.resize(size);
  return from.Read(std::as_writable_bytes(std::span(to)));
}

Status SameRows(const char* file, const NpyReader& reader, const NpyReader& keys) {
  if (reader.shape().rows == keys.shape().rows) return {};
  return InvalidArgument(std::string(file) + " has " + std::to_string(reader.shape().rows) + " rows, " +
                         kKeys + " has " + std::to_string(keys.shape().rows));
}

}  // namespace

ordered_json ToJson(const TableOptions& options) {
  google::protobuf::util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(ToProto(options), &text, print);
  return status.ok() ? ordered_json::parse(text) : ordered_json();
}

Result<std::uint64_t> ExportTable(Client& client, const std::string& table, const fs::path& folder,
                                  bool with_state) {
  fs::path target = fs::absolute(folder).lexically_normal();
  if (target.filename().empty()) target = target.parent_path();  // for "folder/"
  if (fs::exists(target) && !IsOursOrEmpty(target)) {
    return AlreadyExists(target.string() + " is there, and is no saved table");
  }
  const auto info = client.DescribeTable(table);
  if (!info.ok()) return info.status();
  const FolderBeside fresh(target, ".new-");
  fs::create_directories(target.parent_path());
  // What is there by now is somebody else's, or a link to another place.
  if (!fs::create_directory(fresh.path())) return AlreadyExists(fresh.path().string() + " is there");
  std::uint64_t rows = 0;
  if (Status status = WriteFiles(client, *info, fresh.path(), with_state, rows); !status.ok()) return status;
  const FolderBeside old(target, ".old-");
  if (fs::exists(target)) fs::rename(target, old.path());
  fs::rename(fresh.path(), target);
  return rows;
}

Result<Imported> ImportTable(Client& client, const std::string& table, const fs::path& folder,
                             bool with_state) {
  auto keys = NpyReader::Open(folder / kKeys, "<u8", false);
  if (!keys.ok()) return keys.status();
  auto values = NpyReader::Open(folder / kValues, "<f4", true);
  if (!values.ok()) return values.status();
  if (Status status = SameRows(kValues, *values, *keys); !status.ok()) return status;
  std::optional<NpyReader> state;
  if (with_state && fs::exists(folder / kState)) {
    auto opened = NpyReader::Open(folder / kState, "<f4", true);
    if (!opened.ok()) return opened.status();
    if (Status status = SameRows(kState, *opened, *keys); !status.ok()) return status;
    state.emplace(std::move(*opened));
  }
  const auto said = ParseTableJson(folder / kTable);
  const auto target = FindOrMake(client, table, said, folder / kTable);
  if (!target.ok()) return target.status();
  if (state) {
    if (Status status = CheckOptimizer(target->options, said, folder / kTable); !status.ok()) return status;
  }

  const std::uint64_t dim = *values->shape().width;
  const std::uint64_t state_size = state ? *state->shape().width : 0;
  const std::uint64_t each =
      std::max<std::uint64_t>(1, kPieceBytes / (sizeof(Key) + sizeof(float) * (dim + state_size)));
  const std::uint64_t steps = state ? SavedSteps(said) : 0;
  std::vector<Key> some_keys;
  std::vector<float> some_values;
  std::vector<float> some_state;
  std::uint64_t given = 0;
  std::uint64_t first = 0;
  do {  // once without rows too, for the count of steps
    const std::uint64_t count = std::min(each, keys->shape().rows - first);
    if (Status status = Read(*keys, some_keys, count); !status.ok()) return status;
    if (Status status = Read(*values, some_values, count * dim); !status.ok()) return status;
    if (state) {
      if (Status status = Read(*state, some_state, count * state_size); !status.ok()) return status;
    }
    const auto imported =
        client.Import(table, {.keys = some_keys, .values = some_values, .state = some_state}, steps);
    if (!imported.ok()) {
      const Status& why = imported.status();
      if (given == 0) return why;
      return Status(why.code(),
                    why.message() + "; " + std::to_string(given) + " earlier rows of " + folder.string() +
                        " were written before",
                    why.retry_after());
    }
    given += *imported;
    first += each;
  } while (first < keys->shape().rows);
  const float rate = state || target->made ? SavedRate(said) : 0.0F;
  if (rate != 0) {
    if (Status status = client.SetLearningRate(table, rate); !status.ok()) return status;
  }
  Imported done{.rows = given, .warning = {}};
  if (!state) {
    done.warning = WhatStartsAnew(*target, said, given,
                                  with_state ? (folder / kState).string() + " is not there"
                                             : "the import was to take no state (--without-state)");
  }
  return done;
}

}  // namespace slotwise::ctl
