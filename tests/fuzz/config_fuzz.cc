// Fuzzes the server's configuration file.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "server/ops/config.h"
#include "server/ops/config_text.h"
#include "server/ops/fit_limits.h"
#include "tests/fuzz/fuzz.h"
#include "wire/table_options_proto.h"

namespace slotwise::fuzz {
namespace {

void SaysNothingTwice(const std::string& text) {
  v1::ServerConfig values;
  ConfigErrors errors;
  ParseConfigText(text, "server.pbtxt", values, errors);
  std::vector<std::string> said = errors.Errors();
  std::ranges::sort(said);
  Require(std::ranges::adjacent_find(said) == said.end(), "that no error of the text is said twice");
}

}  // namespace

void Run(std::string_view bytes) {
  const std::string text(bytes);
  SaysNothingTwice(text);
  const auto config = ParseConfig(text, "server.pbtxt");
  if (!config.ok()) {
    Require(config.status().code() == StatusCode::kInvalidArgument, "that a wrong file is a wrong argument");
    std::istringstream lines(config.status().message());
    for (std::string line; std::getline(lines, line);)
      Require(line.starts_with("server.pbtxt:"), "that each error names the file");
    return;
  }
  const v1::ServerConfig& values = config->values;
  v1::ServerConfig fitted = values;
  constexpr std::uint64_t kPlenty = std::uint64_t{1} << 50;
  const auto plan = FitLimits({.device = kPlenty, .host = kPlenty}, fitted);
  Require(plan.ok(), "that limits fit where there is plenty of memory");
  Require(FitLimits({}, fitted).status().code() == StatusCode::kFailedPrecondition,
          "that none fit where there is no memory");
  const v1::Limits& limits = fitted.limits();
  Require(limits.max_message_mib() > 0 && limits.max_message_mib() <= 2047, "that a message fits protobuf");
  Require(limits.max_queue_mib() >= limits.max_message_mib(), "that the request queue takes a message");
  Require(limits.max_round_mib() > 0 && limits.max_tables() > 0 && limits.max_ledger_mib() > 0 &&
              limits.max_evicted_mib() > 0 && limits.max_connections() > 0 &&
              limits.max_calls_per_connection() > 0 && limits.reply_timeout_ms() > 0 &&
              limits.step_timeout_ms() > 0 && limits.rank_timeout_ms() > 0 &&
              limits.collective_timeout_ms() > 0 && limits.max_rank_percent() > 100,
          "that every limit is there");

  std::string printed;
  Require(google::protobuf::TextFormat::PrintToString(values, &printed), "that it can be printed");
  const auto again = ParseConfig(printed, "server.pbtxt");
  Require(again.ok(), "that it is taken when it is printed");
  Require(again->values.SerializeAsString() == values.SerializeAsString(), "that it is then the same");
  Require(Fingerprint(*again) == Fingerprint(*config), "that its fingerprint is the same");
  for (const v1::TableOptions& table : values.tables()) {
    const auto options = FromProto(table);
    if (!options.ok()) continue;
    const auto same = FromProto(ToProto(*options));
    Require(same.ok() && *same == *options, "that a table's options are the same when encoded again");
  }
}

}  // namespace slotwise::fuzz
