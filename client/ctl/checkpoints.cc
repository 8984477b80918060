#include "client/ctl/checkpoints.h"

#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "client/ctl/text_table.h"
#include "slotwise/table_options.h"
#include "wire/json.h"

namespace slotwise::ctl {
namespace {

using nlohmann::ordered_json;

// Shows on a terminal what this process is waiting for, until the destructor runs.
class WaitingLine {
 public:
  explicit WaitingLine(std::string what) : what_(std::move(what)) {
    if (isatty(STDERR_FILENO) != 0)
      thread_ = std::jthread([this](const std::stop_token& stop) { Tell(stop); });
  }

 private:
  void Tell(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    for (int seconds = 1;; ++seconds) {
      never.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
      if (stop.stop_requested()) break;
      std::fprintf(stderr, "\r%s: %d s ", what_.c_str(), seconds);
    }
    std::fputs("\r\x1b[K", stderr);  // clears the line
  }

  const std::string what_;
  std::jthread thread_;
};

ordered_json ToJson(const CheckpointDescription& checkpoint) {
  ordered_json json = {{"id", checkpoint.id},
                       {"parent", checkpoint.parent},
                       {"folds", checkpoint.folds},
                       {"created", checkpoint.created},
                       {"round", checkpoint.round},
                       {"ranks", checkpoint.ranks},
                       {"rows", checkpoint.rows},
                       {"bytes", checkpoint.bytes},
                       {"usable", checkpoint.usable},
                       {"why_not", checkpoint.why_not},
                       {"pinned", checkpoint.pinned},
                       {"kept_for_load", checkpoint.kept_for_load},
                       {"tables", ordered_json::array()}};
  for (const TableInCheckpoint& table : checkpoint.tables)
    json["tables"].push_back({{"name", table.name}, {"rows", table.rows}});
  return json;
}

std::string KindOf(const CheckpointDescription& checkpoint) {
  if (checkpoint.ranks == 0) return "?";  // the manifest cannot be read
  return checkpoint.parent.empty() ? "base" : "delta";
}

std::string RowsAndBytes(std::uint64_t rows, std::uint64_t bytes) {
  return CountText(rows) + (rows == 1 ? " row, " : " rows, ") + BytesText(bytes);
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Returns the optimizer's name in a table's options: protobuf's JSON, or the flat object of format_version 1.
std::string OptimizerOf(const ordered_json& options) {
  const ordered_json& optimizer = options["optimizer"];
  if (optimizer.is_string()) return optimizer;
  const auto read = TableOptionsFromJson(options.dump());
  return read.ok() ? std::string(ToString(read->optimizer.kind)) : "?";
}

// Returns a number of a manifest. Protobuf's JSON has those of 64 bits as strings, earlier ones as numbers.
std::uint64_t NumberOf(const ordered_json& value) {
  return value.is_string() ? std::stoull(value.get<std::string>()) : value.get<std::uint64_t>();
}

std::string ShownTables(const ordered_json& manifest) {
  TextTable text({"TABLE", ">ID", ">DIM", "OPTIMIZER", ">STEPS", "VALUES", ">ROWS", ">ERASED", ">SIZE"});
  for (const ordered_json& table : manifest["tables"]) {
    std::uint64_t rows = 0;
    std::uint64_t erased = 0;
    std::uint64_t bytes = 0;
    for (const ordered_json& rank : table["ranks"]) {
      rows += NumberOf(rank["rows"]);
      if (rank.contains("erased")) erased += NumberOf(rank["erased"]);
      for (const ordered_json& file : rank["files"]) bytes += NumberOf(file["bytes"]);
    }
    const ordered_json& options = table["options"];
    text.Add({options["name"], std::to_string(table["id"].get<std::uint64_t>()),
              std::to_string(options["dim"].get<std::uint64_t>()), OptimizerOf(options),
              CountText(NumberOf(table["steps"])), table["value_type"], CountText(rows), CountText(erased),
              BytesText(bytes)});
  }
  return text.Text();
}

// Returns what --row-dtype and --rounding ask for; none: they are not given.
Result<std::optional<RowType>> RowsAsked(const std::string& row_dtype, const std::string& rounding) {
  if (row_dtype.empty()) {
    if (!rounding.empty()) return InvalidArgument("--rounding: needs a --row-dtype of 16 bits");
    return std::optional<RowType>();
  }
  RowType rows;
  for (const DataType type : EveryKind<DataType>()) {
    if (ToString(type) == row_dtype) rows.dtype = type;
  }
  if (rounding == ToString(Rounding::kNearest)) rows.rounding = Rounding::kNearest;
  if (rows.dtype == DataType::kFloat32 && !rounding.empty())
    return InvalidArgument("--rounding: needs a --row-dtype of 16 bits");
  return std::optional(rows);
}

}  // namespace

std::string TimeText(std::uint64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  std::array<char, 32> text{};
  if (gmtime_r(&time, &utc) == nullptr) return std::to_string(seconds);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &utc);
  return text.data();
}

Result<Answer> SaveCheckpoint(Client& client, bool delta, const std::string& value_type) {
  DataType type = DataType::kFloat32;
  for (const DataType known : {DataType::kFloat16, DataType::kBFloat16}) {
    if (ToString(known) == value_type) type = known;
  }
  const auto made = [&] {
    const WaitingLine line("saving");
    return client.SaveCheckpoint(delta, type);
  }();
  if (!made.ok()) return made.status();
  std::string text = made->id + ": a " + (made->delta ? "delta" : "base") + " of round " +
                     std::to_string(made->round) + ", " + RowsAndBytes(made->rows, made->bytes) + "\n";
  if (delta && !made->delta) text += "a base, because the server does not know what has changed since one\n";
  return Answer{.json = {{"id", made->id},
                         {"delta", made->delta},
                         {"round", made->round},
                         {"rows", made->rows},
                         {"bytes", made->bytes}},
                .text = std::move(text)};
}

Result<Answer> ListCheckpoints(Client& client) {
  const auto checkpoints = client.ListCheckpoints();
  if (!checkpoints.ok()) return checkpoints.status();
  Answer answer{.json = {{"checkpoints", ordered_json::array()}}, .text = {}};
  TextTable text(
      {"ID", "KIND", "CREATED (UTC)", ">ROUND", ">RANKS", ">TABLES", ">ROWS", ">SIZE", "USABLE", "PINNED"});
  std::string why_not;
  for (const CheckpointDescription& checkpoint : *checkpoints) {
    answer.json["checkpoints"].push_back(ToJson(checkpoint));
    text.Add({checkpoint.id, KindOf(checkpoint), TimeText(checkpoint.created), CountText(checkpoint.round),
              std::to_string(checkpoint.ranks), std::to_string(checkpoint.tables.size()),
              CountText(checkpoint.rows), BytesText(checkpoint.bytes), checkpoint.usable ? "yes" : "NO",
              checkpoint.pinned          ? "yes"
              : checkpoint.kept_for_load ? "by a load"
                                         : "-"});
    if (!checkpoint.usable) why_not += checkpoint.id + " cannot be used: " + checkpoint.why_not + "\n";
  }
  answer.text = checkpoints->empty() ? "there are no checkpoints\n" : text.Text() + why_not;
  return answer;
}

Result<Answer> ShowCheckpoint(Client& client, const std::string& id) {
  const auto details = client.DescribeCheckpoint(id);
  if (!details.ok()) return details.status();
  const CheckpointDescription& checkpoint = details->checkpoint;
  const ordered_json manifest = ordered_json::parse(details->manifest, nullptr, false);
  if (manifest.is_discarded()) return Status(StatusCode::kInternal, "the manifest is no JSON");
  Answer answer{.json = ToJson(checkpoint), .text = {}};
  answer.json["folder"] = details->folder;
  answer.json["chain"] = details->chain;
  answer.json["manifest"] = manifest;
  answer.text = checkpoint.id + ": a " + KindOf(checkpoint) + " of round " + CountText(checkpoint.round) +
                ", " + RowsAndBytes(checkpoint.rows, checkpoint.bytes) + "\nwritten " +
                TimeText(checkpoint.created) + " UTC by " + std::to_string(checkpoint.ranks) +
                (checkpoint.ranks == 1 ? " rank" : " ranks") + " of slotwise-server " +
                manifest.value("server_version", "?") + " to " + details->folder + "\n";
  answer.text += checkpoint.usable ? "restored from " + Joined(details->chain) + "\n"
                                   : "it cannot be used: " + checkpoint.why_not + "\n";
  if (checkpoint.pinned) answer.text += "pinned: it stays until it is released\n";
  if (checkpoint.kept_for_load) answer.text += "it stays until another checkpoint is loaded\n";
  answer.text += ShownTables(manifest);
  return answer;
}

Result<Answer> VerifyCheckpoint(Client& client, const std::string& id) {
  const auto verified = [&] {
    const WaitingLine line("verifying");
    return client.VerifyCheckpoint(id);
  }();
  if (!verified.ok()) return verified.status();
  return Answer{.json = {{"chain", verified->chain}, {"files", verified->files}, {"bytes", verified->bytes}},
                .text = id + " is whole: " + CountText(verified->files) + " files, " +
                        BytesText(verified->bytes) + ", of " + Joined(verified->chain) + "\n"};
}

Result<Answer> LoadCheckpoint(Client& client, const std::string& id, const std::vector<std::string>& tables,
                              const std::string& row_dtype, const std::string& rounding) {
  const auto rows_as = RowsAsked(row_dtype, rounding);
  if (!rows_as.ok()) return rows_as.status();
  const auto made = [&] {
    const WaitingLine line("loading");
    return client.LoadCheckpoint(id, tables, {}, *rows_as);
  }();
  if (!made.ok()) return made.status();
  return Answer{
      .json = {{"id", made->id}, {"round", made->round}, {"rows", made->rows}, {"bytes", made->bytes}},
      .text = (tables.empty() ? id : Joined(tables) + " of " + id) + " is loaded, and saved as " + made->id +
              ": a base of round " + std::to_string(made->round) + ", " +
              RowsAndBytes(made->rows, made->bytes) + "\n"};
}

Result<Answer> PinCheckpoint(Client& client, const std::string& id) {
  if (const Status status = client.PinCheckpoint(id); !status.ok()) return status;
  return Answer{.json = {{"id", id}, {"pinned", true}}, .text = id + " stays until it is released\n"};
}

Result<Answer> ReleaseCheckpoint(Client& client, const std::string& id) {
  if (const Status status = client.ReleaseCheckpoint(id); !status.ok()) return status;
  return Answer{.json = {{"id", id}, {"pinned", false}},
                .text = id + " goes once enough newer checkpoints are there\n"};
}

Result<Answer> CompactCheckpoint(Client& client, const std::string& id) {
  const auto folded = [&] {
    const WaitingLine line("compacting");
    return client.CompactCheckpoint(id);
  }();
  if (!folded.ok()) return folded.status();
  return Answer{.json = ToJson(*folded),
                .text = folded->id + ": a base of round " + CountText(folded->round) + ", " +
                        RowsAndBytes(folded->rows, folded->bytes) + ", with the state of " + id + "\n"};
}

}  // namespace slotwise::ctl
