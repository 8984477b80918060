#include "client/ctl/table_folder.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <vector>

#include "client/ctl/npy.h"
#include "client/ctl/repeated_key.h"
#include "client/ctl/saved_table.h"
#include "wire/json.h"
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

// Returns whether `folder` may be replaced: it is empty, or holds nothing but a saved table.
bool IsOursOrEmpty(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  const bool holds_keys = names.erase(kKeys) > 0;
  for (const char* name : {kValues, kState, kTable}) names.erase(name);
  return names.empty() && (holds_keys || fs::is_empty(folder));
}

// A folder beside `target`. The destructor removes it unless it was renamed.
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
  if (with_state) state.emplace(folder / kState, "<f4", FloatsBehindValues(options));
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
  ordered_json said{{"options", OptionsJson(options)}, {"steps", info.steps}};
  // An older server does not report the rate, which is then 0.
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

// Returns INVALID_ARGUMENT unless table.json matches the arrays beside it.
Status CheckArrays(const Saved& saved, const fs::path& folder, std::uint64_t rows, bool with_state) {
  if (!saved.there) return {};
  const std::string path = (folder / kTable).string();
  if (saved.rows != rows) {
    return InvalidArgument(path + ": \"rows\" is " + std::to_string(saved.rows) + ", but " + kKeys + " has " +
                           std::to_string(rows));
  }
  const bool there = fs::exists(folder / kState);
  if (!with_state || saved.with_state.value_or(there) == there) return {};
  return InvalidArgument(path + ": \"with_state\" is " + (there ? "false" : "true") + ", but " + kState +
                         (there ? " is there" : " is not") +
                         ": import --without-state, and rows get the state of new rows");
}

struct Target {
  TableOptions options;
  std::uint64_t steps = 0;
  bool made = false;
  std::uint64_t evicted_rows = 0;
};

// Finds the table, or makes it as table.json describes it.
Result<Target> FindOrMake(Client& client, const std::string& table, const Saved& saved,
                          const fs::path& path) {
  const auto described = client.DescribeTable(table);
  if (described.ok()) return Target{described->options, described->steps, false, described->evicted_rows};
  if (described.status().code() != StatusCode::kNotFound) return described.status();
  if (!saved.there) {
    return NotFound("there is no table \"" + table + "\", and no " + path.string() + " to make it by");
  }
  const auto created = client.CreateTable(saved.options);
  if (!created.ok()) return created.status();
  return Target{created->options, 0, true};
}

// Only the optimizer that made the state can use it.
Status CheckOptimizer(const TableOptions& ours, const Saved& saved) {
  if (!saved.there || saved.options.optimizer.kind == ours.optimizer.kind) return {};
  return InvalidArgument("the state was saved from a table of " +
                         std::string(ToString(saved.options.optimizer.kind)) + ", and \"" + ours.name.str() +
                         "\" has " + std::string(ToString(ours.optimizer.kind)) +
                         ": import --without-state, and rows get the state of new rows");
}

// Returns whether the saved rows have scores that mean something else in the table, or nothing.
bool HasOtherScores(const TableOptions& ours, const Saved& saved) {
  return saved.there && saved.options.has_scores() && saved.options.score() != ours.score();
}

// Takes the scores, which come last, off the rows' state.
void DropScores(std::vector<float>& state, std::size_t rows, std::size_t size) {
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(&state[row * size], size - kScoreFloats, state.begin() + row * (size - kScoreFloats));
  state.resize(rows * (size - kScoreFloats));
}

// Returns what starts anew in a table whose rows came without state.
std::string WhatStartsAnew(const Target& target, const Saved& saved, std::uint64_t rows,
                           const std::string& why) {
  const TableOptions& options = target.options;
  std::vector<std::string> anew;
  if (FloatsBehindValues(options) > 0) {
    anew.push_back("the state of " + std::string(ToString(options.optimizer.kind)) + " starts anew in " +
                   std::to_string(rows) + " row(s)");
  }
  if (saved.steps > target.steps) {
    anew.push_back("the count of steps stays " + std::to_string(target.steps) + ", and was " +
                   std::to_string(saved.steps) + " in the saved table");
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

ordered_json OptionsJson(const TableOptions& options) {
  return ordered_json::parse(ToJson(ToProto(options)));
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
  // A folder that appeared meanwhile is another process's, or a link to another place.
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
  const auto saved = ReadSaved(folder / kTable, table);
  if (!saved.ok()) return saved.status();
  if (Status status = CheckArrays(*saved, folder, keys->shape().rows, with_state); !status.ok())
    return status;
  const auto repeated = FindRepeatedKey(folder / kKeys);
  if (!repeated.ok()) return repeated.status();
  if (*repeated) {
    return InvalidArgument((folder / kKeys).string() + " has key " + std::to_string(Value(**repeated)) +
                           " twice: a table has one row of a key");
  }
  const auto target = FindOrMake(client, table, *saved, folder / kTable);
  if (!target.ok()) return target.status();
  if (state) {
    if (Status status = CheckOptimizer(target->options, *saved); !status.ok()) return status;
  }

  const std::uint64_t dim = *values->shape().width;
  const std::uint64_t state_size = state ? *state->shape().width : 0;
  const std::uint64_t each =
      std::max<std::uint64_t>(1, kPieceBytes / (sizeof(Key) + sizeof(float) * (dim + state_size)));
  const std::uint64_t steps = state ? saved->steps : 0;
  const bool drops_scores = state && state_size >= kScoreFloats && HasOtherScores(target->options, *saved);
  std::vector<Key> some_keys;
  std::vector<float> some_values;
  std::vector<float> some_state;
  std::uint64_t given = 0;
  std::uint64_t first = 0;
  do {  // at least once, even without rows, to set the count of steps
    const std::uint64_t count = std::min(each, keys->shape().rows - first);
    if (Status status = Read(*keys, some_keys, count); !status.ok()) return status;
    if (Status status = Read(*values, some_values, count * dim); !status.ok()) return status;
    if (state) {
      if (Status status = Read(*state, some_state, count * state_size); !status.ok()) return status;
      if (drops_scores) DropScores(some_state, count, state_size);
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
  const float rate = state || target->made ? saved->learning_rate : 0.0F;
  if (rate != 0) {
    if (Status status = client.SetLearningRate(table, rate); !status.ok()) return status;
  }
  Imported done{.rows = given, .warning = {}};
  if (!state) {
    done.warning = WhatStartsAnew(*target, *saved, given,
                                  with_state ? (folder / kState).string() + " is not there"
                                             : "the import was to take no state (--without-state)");
  }
  if (drops_scores) {
    done.warning = "table " + table + ": its rows score by " +
                   std::string(ToString(target->options.score())) + ", and the saved scores, by " +
                   std::string(ToString(saved->options.score())) + ", were left out";
  }
  if (target->options.evicts()) {
    const auto described = client.DescribeTable(table);
    const std::uint64_t now = described.ok() ? described->evicted_rows : target->evicted_rows;
    if (now > target->evicted_rows) {
      done.warning += (done.warning.empty() ? "" : "; ") + ("table " + table + " evicted ") +
                      std::to_string(now - target->evicted_rows) + " row(s) meanwhile";
    }
  }
  return done;
}

}  // namespace slotwise::ctl
