#include "server/ops/config_check.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "server/access/principal.h"
#include "server/ops/host_port.h"
#include "server/ops/logging.h"
#include "slotwise/loopback.h"
#include "slotwise/table_options.h"

namespace slotwise {
namespace {

using v1::Limits;
using v1::ServerConfig;

Status Refuse(const std::string& place, std::string_view field, const std::string& value,
              std::string_view rule) {
  std::string message = place;
  message.append(field).append(" is ").append(value).append(": ").append(rule);
  return InvalidArgument(message);
}

Status CheckRange(const std::string& place, std::string_view field, std::uint32_t value, std::uint32_t low,
                  std::uint32_t high) {
  if (value >= low && value <= high) return {};
  return Refuse(place, field, std::to_string(value),
                "must be " + std::to_string(low) + " to " + std::to_string(high));
}

struct Range {
  int field;
  std::string_view name;
  std::uint32_t value, low, high;
};

Status CheckLimits(const Limits& limits, const ConfigPlaces& where) {
  constexpr std::uint32_t kDay = 24U * 3600 * 1000;
  const std::array ranges{
      // Protobuf's and gRPC's sizes have 31 bits.
      Range{Limits::kMaxMessageMibFieldNumber, "limits.max_message_mib", limits.max_message_mib(), 1, 2047},
      Range{Limits::kMaxRoundMibFieldNumber, "limits.max_round_mib", limits.max_round_mib(), 1, 4096},
      Range{Limits::kMaxInboxMibFieldNumber, "limits.max_inbox_mib", limits.max_inbox_mib(), 1, 1 << 24},
      Range{Limits::kMaxSharedMibFieldNumber, "limits.max_shared_mib", limits.max_shared_mib(), 1, 1 << 24},
      Range{Limits::kMaxGpuArenaMibFieldNumber, "limits.max_gpu_arena_mib", limits.max_gpu_arena_mib(), 1,
            1 << 24},
      Range{Limits::kMaxConnectionsFieldNumber, "limits.max_connections", limits.max_connections(), 16,
            1'000'000},
      Range{Limits::kMaxCallsPerConnectionFieldNumber, "limits.max_calls_per_connection",
            limits.max_calls_per_connection(), 1, 100'000},
      Range{Limits::kReplyTimeoutMsFieldNumber, "limits.reply_timeout_ms", limits.reply_timeout_ms(), 100,
            kDay},
      // A limit below a second would end healthy ranks when a busy machine pauses.
      Range{Limits::kRankTimeoutMsFieldNumber, "limits.rank_timeout_ms", limits.rank_timeout_ms(), 1000,
            kDay},
      Range{Limits::kMaxTablesFieldNumber, "limits.max_tables", limits.max_tables(), 1, 100'000},
      Range{Limits::kMaxLedgerMibFieldNumber, "limits.max_ledger_mib", limits.max_ledger_mib(), 1, 1 << 20},
      Range{Limits::kStepTimeoutMsFieldNumber, "limits.step_timeout_ms", limits.step_timeout_ms(), 1, kDay},
      Range{Limits::kCollectiveTimeoutMsFieldNumber, "limits.collective_timeout_ms",
            limits.collective_timeout_ms(), 1000, kDay},
      // With less than 110 percent, keys that nobody chose could reach the limit
      // (server/engine/rank_limit.h).
      Range{Limits::kMaxRankPercentFieldNumber, "limits.max_rank_percent", limits.max_rank_percent(), 110,
            1'000'000}};
  for (const Range& range : ranges) {
    if (range.value == 0) continue;  // it follows the memory (FitLimits)
    Status status = CheckRange(where.Limit(range.field), range.name, range.value, range.low, range.high);
    if (!status.ok()) return status;
  }
  if (limits.max_inbox_mib() != 0 && limits.max_inbox_mib() < limits.max_message_mib()) {
    return Refuse(
        where.Limit(Limits::kMaxInboxMibFieldNumber), "limits.max_inbox_mib",
        std::to_string(limits.max_inbox_mib()),
        "must not be below limits.max_message_mib, which is " + std::to_string(limits.max_message_mib()));
  }
  return {};
}

Status CheckDurability(const v1::Durability& durability, const ConfigPlaces& where) {
  using v1::Durability;
  if (!v1::DurabilityMode_IsValid(durability.mode())) {
    return Refuse(where.DurabilityField(Durability::kModeFieldNumber), "durability.mode",
                  std::to_string(durability.mode()),
                  "must be DURABILITY_MODE_NONE, DURABILITY_MODE_INTERVAL or DURABILITY_MODE_SYNC");
  }
  constexpr std::uint32_t kMonth = 31U * 24 * 3600;
  for (const Range& range :
       {Range{Durability::kIntervalSFieldNumber, "durability.interval_s", durability.interval_s(), 1, kMonth},
        Range{Durability::kCheckpointEverySFieldNumber, "durability.checkpoint_every_s",
              durability.checkpoint_every_s(), 0, kMonth},
        Range{Durability::kKeepFieldNumber, "durability.keep", durability.keep(), 1, 1000},
        Range{Durability::kMaxDeltasFieldNumber, "durability.max_deltas", durability.max_deltas(), 1, 1000},
        Range{Durability::kMaxPreimageMibFieldNumber, "durability.max_preimage_mib",
              durability.max_preimage_mib(), 1, 1 << 24}}) {
    Status status =
        CheckRange(where.DurabilityField(range.field), range.name, range.value, range.low, range.high);
    if (!status.ok()) return status;
  }
  if (durability.folder().empty() && durability.mode() != v1::DURABILITY_MODE_NONE) {
    return Refuse(where.DurabilityField(Durability::kModeFieldNumber), "durability.mode",
                  v1::DurabilityMode_Name(durability.mode()), "needs durability.folder");
  }
  return {};
}

bool IsOfName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

Status CheckPrincipal(const v1::Principal& principal, bool has_certificates, const std::string& place,
                      const std::string& field) {
  constexpr std::size_t kMostCharacters = 64;
  if (principal.name().empty() || principal.name().size() > kMostCharacters ||
      !std::ranges::all_of(principal.name(), IsOfName)) {
    return Refuse(place, field + ".name", QuotedHost(principal.name()),
                  "must be 1 to 64 letters, digits, '_', '-' and '.'");
  }
  if (principal.token_file().empty() && principal.certificate_name().empty()) {
    return InvalidArgument(place + field + " (" + principal.name() +
                           ") has neither a token_file nor a certificate_name: nobody could be it");
  }
  if (!principal.certificate_name().empty() && !has_certificates) {
    return Refuse(place, field + ".certificate_name", QuotedHost(principal.certificate_name()),
                  "needs security.tls.client_ca_file");
  }
  for (int i = 0; i < principal.grants_size(); ++i) {
    const v1::Grant& grant = principal.grants(i);
    const std::string its = field + ".grants[" + std::to_string(i) + "]";
    const bool is_name = ValidateTableName(grant.table()).ok();
    if (!is_name && grant.table() != kAllTables) {
      return Refuse(place, its + ".table", QuotedHost(grant.table()),
                    "must be a table's name, or *: all tables");
    }
    for (const int right : grant.rights()) {
      if (v1::Right_IsValid(right) && right != v1::RIGHT_UNSPECIFIED) continue;
      return Refuse(place, its + ".rights", std::to_string(right),
                    "must be RIGHT_READ, RIGHT_PUSH, RIGHT_ROWS, RIGHT_ADMIN or RIGHT_OBSERVE");
    }
    const bool is_all = grant.table() == kAllTables;
    if (!is_all && std::ranges::count(grant.rights(), v1::RIGHT_OBSERVE) > 0) {
      return Refuse(place, its + ".rights", "RIGHT_OBSERVE", "is of the server: its table must be *");
    }
    if (grant.rights().empty()) return InvalidArgument(place + its + " has no rights");
  }
  return {};
}

Status CheckSecurity(const v1::Security& security, const ConfigPlaces& where) {
  const std::string place = where.Field(ServerConfig::kSecurityFieldNumber);
  const v1::Tls& tls = security.tls();
  if (security.has_tls() && (tls.certificate_file().empty() || tls.key_file().empty())) {
    return InvalidArgument(place + "security.tls needs a certificate_file and a key_file");
  }
  constexpr int kMostPrincipals = 1024;
  if (security.principals_size() > kMostPrincipals) {
    return Refuse(place, "security.principals", std::to_string(security.principals_size()) + " principals",
                  "at most " + std::to_string(kMostPrincipals));
  }
  constexpr int kMostUsers = 1024;
  if (security.local_users_size() > kMostUsers) {
    return Refuse(place, "security.local_users", std::to_string(security.local_users_size()) + " users",
                  "at most " + std::to_string(kMostUsers));
  }
  if (security.local_users_size() > 0 && security.principals_size() == 0) {
    return InvalidArgument(place +
                           "security.local_users needs security.principals: whoever is on the host may do "
                           "everything without them");
  }
  std::set<std::string_view> names;
  std::set<std::string_view> certificates;
  for (int i = 0; i < security.principals_size(); ++i) {
    const v1::Principal& principal = security.principals(i);
    const std::string field = "security.principals[" + std::to_string(i) + "]";
    if (Status status = CheckPrincipal(principal, !tls.client_ca_file().empty(), place, field); !status.ok())
      return status;
    if (const std::string& name = principal.certificate_name();
        !name.empty() && !certificates.insert(name).second) {
      return Refuse(place, field + ".certificate_name", QuotedHost(name), "another principal has that name");
    }
    if (!names.insert(principal.name()).second) {
      return Refuse(place, field + ".name", '"' + principal.name() + '"', "another principal has that name");
    }
  }
  return {};
}

Status CheckTableNames(const ServerConfig& config, const ConfigPlaces& where) {
  std::set<std::string_view> names;
  for (int table = 0; table < config.tables_size(); ++table) {
    const std::string& name = config.tables(table).name();
    if (names.insert(name).second) continue;
    return Refuse(where.Table(table), "tables[" + std::to_string(table) + "].name", '"' + name + '"',
                  "another table has that name");
  }
  return {};
}

}  // namespace

std::string ConfigPlaces::Place(const Tree& tree, const google::protobuf::FieldDescriptor* field,
                                int index) const {
  const auto location = tree.GetLocation(field, index);
  if (location.line < 0) return file_ + ": ";
  return file_ + ":" + std::to_string(location.line + 1) + ":" + std::to_string(location.column + 1) + ": ";
}

std::string ConfigPlaces::Field(int number) const {
  return Place(tree_, ServerConfig::descriptor()->FindFieldByNumber(number), -1);
}

std::string ConfigPlaces::Limit(int number) const {
  return FieldOf(ServerConfig::kLimitsFieldNumber, Limits::descriptor()->FindFieldByNumber(number));
}

std::string ConfigPlaces::DurabilityField(int number) const {
  return FieldOf(ServerConfig::kDurabilityFieldNumber,
                 v1::Durability::descriptor()->FindFieldByNumber(number));
}

std::string ConfigPlaces::FieldOf(int message, const google::protobuf::FieldDescriptor* field) const {
  const Tree* tree = tree_.GetTreeForNested(ServerConfig::descriptor()->FindFieldByNumber(message), -1);
  return tree == nullptr ? file_ + ": " : Place(*tree, field, -1);
}

std::string ConfigPlaces::Table(int index) const {
  return Place(tree_, ServerConfig::descriptor()->FindFieldByNumber(ServerConfig::kTablesFieldNumber), index);
}

Status CheckConfig(const ServerConfig& config, const ConfigPlaces& where) {
  if (const auto listen = ParseHostPort(config.listen()); !listen.ok()) {
    return InvalidArgument(where.Field(ServerConfig::kListenFieldNumber) +
                           "listen: " + listen.status().message());
  }
  if (!config.metrics_listen().empty()) {
    if (const auto listen = ParseHostPort(config.metrics_listen()); !listen.ok()) {
      return InvalidArgument(where.Field(ServerConfig::kMetricsListenFieldNumber) +
                             "metrics_listen: " + listen.status().message());
    }
  }
  if (!config.health_listen().empty()) {
    if (const auto listen = ParseHostPort(config.health_listen()); !listen.ok()) {
      return InvalidArgument(where.Field(ServerConfig::kHealthListenFieldNumber) +
                             "health_listen: " + listen.status().message());
    }
  }
  // advertise_host must be a host without a port, because every rank adds its own port.
  if (!config.advertise_host().empty() && !ParseHostPort(config.advertise_host() + ":0").ok()) {
    return Refuse(where.Field(ServerConfig::kAdvertiseHostFieldNumber), "advertise_host",
                  QuotedHost(config.advertise_host()), "must be a host's name or address, without a port");
  }
  if (!v1::Backend_IsValid(config.backend())) {
    return Refuse(where.Field(ServerConfig::kBackendFieldNumber), "backend", std::to_string(config.backend()),
                  "must be BACKEND_AUTO, BACKEND_CPU or BACKEND_CUDA");
  }
  if (Status status =
          CheckRange(where.Field(ServerConfig::kThreadsFieldNumber), "threads", config.threads(), 0, 4096);
      !status.ok()) {
    return status;
  }
  if (std::ranges::find(kLogLevels, config.log_level()) == kLogLevels.end()) {
    return Refuse(where.Field(ServerConfig::kLogLevelFieldNumber), "log_level",
                  '"' + config.log_level() + '"', "must be trace, debug, info, warning or error");
  }
  if (!v1::LogFormat_IsValid(config.log_format())) {
    return Refuse(where.Field(ServerConfig::kLogFormatFieldNumber), "log_format",
                  std::to_string(config.log_format()), "must be LOG_FORMAT_TEXT or LOG_FORMAT_JSON");
  }
  if (!v1::DataType_IsValid(config.partial_sums())) {
    return Refuse(where.Field(ServerConfig::kPartialSumsFieldNumber), "partial_sums",
                  std::to_string(config.partial_sums()),
                  "must be DATA_TYPE_FLOAT32, DATA_TYPE_FLOAT16 or DATA_TYPE_BFLOAT16");
  }
  if (Status status = CheckLimits(config.limits(), where); !status.ok()) return status;
  if (Status status = CheckDurability(config.durability(), where); !status.ok()) return status;
  if (Status status = CheckSecurity(config.security(), where); !status.ok()) return status;
  const auto tables = static_cast<std::uint32_t>(config.tables_size());
  if (const std::uint32_t most = config.limits().max_tables(); tables > most) {
    return Refuse(where.Table(static_cast<int>(most)), "tables", std::to_string(tables) + " tables",
                  "limits.max_tables allows " + std::to_string(most));
  }
  return CheckTableNames(config, where);
}

Status CheckWhoReaches(const ServerConfig& config) {
  if (config.insecure()) return {};
  for (const auto& [field, value] :
       {std::pair("listen", &config.listen()), std::pair("metrics_listen", &config.metrics_listen())}) {
    if (value->empty()) continue;
    const auto address = ParseHostPort(*value);
    if (!address.ok()) return address.status();
    if (IsLoopback(address->host)) continue;
    const bool knows_whom =
        config.security().principals_size() > 0 || !config.security().tls().client_ca_file().empty();
    const bool is_listen = value == &config.listen();
    if (!is_listen && config.insecure_metrics()) continue;
    if (is_listen && config.security().has_tls() && knows_whom) continue;
    std::string rule =
        "other machines may reach it, without both authentication and encryption: name a loopback address, "
        "such as "
        "127.0.0.1, or, on a private network, say insecure: true (--insecure)";
    if (!is_listen) rule += " or insecure_metrics: true";
    if (is_listen) rule += ", or have security.tls, with principals or a client_ca_file";
    return Refuse("", field, QuotedHost(*value), rule);
  }
  return {};
}

Status CheckPorts(const ServerConfig& config) {
  const std::array<std::pair<std::string_view, const std::string*>, 3> fields{
      {{"listen", &config.listen()},
       {"metrics_listen", &config.metrics_listen()},
       {"health_listen", &config.health_listen()}}};
  for (auto later = fields.begin(); later != fields.end(); ++later) {
    for (auto earlier = fields.begin(); earlier != later; ++earlier) {
      if (later->second->empty() || earlier->second->empty()) continue;
      const auto here = ParseHostPort(*later->second);
      const auto there = ParseHostPort(*earlier->second);
      if (!here.ok()) return here.status();
      if (!there.ok()) return there.status();
      if (here->port == 0 || here->port != there->port) continue;
      if (here->host != there->host && !IsWildcard(here->host) && !IsWildcard(there->host)) continue;
      return Refuse("", later->first, QuotedHost(*later->second),
                    std::string(earlier->first) + " takes that port: " + QuotedHost(*earlier->second));
    }
  }
  return {};
}

}  // namespace slotwise
