#include "server/ops/config_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "server/access/principal.h"
#include "server/ops/config_text.h"
#include "server/ops/host_port.h"
#include "server/ops/logging.h"
#include "slotwise/loopback.h"
#include "slotwise/table_options.h"

namespace slotwise {
namespace {

// A checkpoint's file of names of steps has at most twice the bytes that they take in memory, and a reader
// refuses files above twice this: kMaxLedgerBytes of server/durability/manifest.h.
constexpr std::uint32_t kMostLedgerMib = 1024;

using v1::Limits;
using v1::ServerConfig;

// The errors that checks add to, and the places that they name.
struct Report {
  const ConfigPlaces& where;
  ConfigErrors& errors;

  void Add(const ConfigPath& path, const std::string& what) const { errors.Add(where.At(path), what); }
  void Refuse(const ConfigPath& path, std::string_view field, const std::string& value,
              std::string_view rule) const {
    Add(path, std::string(field).append(" is ").append(value).append(": ").append(rule));
  }
};

struct Range {
  int field;
  std::string_view name;
  std::uint32_t value, low, high;
};

void CheckRange(const Report& report, const ConfigPath& path, const Range& range) {
  if (range.value >= range.low && range.value <= range.high) return;
  report.Refuse(path, range.name, std::to_string(range.value),
                "must be " + std::to_string(range.low) + " to " + std::to_string(range.high));
}

void CheckLimits(const Limits& limits, const Report& report) {
  constexpr std::uint32_t kDay = 24U * 3600 * 1000;
  const std::array ranges{
      // Protobuf's and gRPC's sizes have 31 bits.
      Range{Limits::kMaxMessageMibFieldNumber, "limits.max_message_mib", limits.max_message_mib(), 1, 2047},
      Range{Limits::kMaxRoundMibFieldNumber, "limits.max_round_mib", limits.max_round_mib(), 1, 4096},
      Range{Limits::kMaxQueueMibFieldNumber, "limits.max_queue_mib", limits.max_queue_mib(), 1, 1 << 24},
      Range{Limits::kMaxSharedMibFieldNumber, "limits.max_shared_mib", limits.max_shared_mib(), 1, 1 << 24},
      Range{Limits::kMaxGpuSharedMibFieldNumber, "limits.max_gpu_shared_mib", limits.max_gpu_shared_mib(), 1,
            1 << 24},
      Range{Limits::kMaxConnectionsFieldNumber, "limits.max_connections", limits.max_connections(), 16,
            1'000'000},
      Range{Limits::kMaxCallsPerConnectionFieldNumber, "limits.max_calls_per_connection",
            limits.max_calls_per_connection(), 1, 100'000},
      Range{Limits::kMaxCallsFieldNumber, "limits.max_calls", limits.max_calls(), 4, 4'000'000},
      Range{Limits::kReplyTimeoutMsFieldNumber, "limits.reply_timeout_ms", limits.reply_timeout_ms(), 100,
            kDay},
      // A limit below a second would end healthy ranks when a busy machine pauses.
      Range{Limits::kRankTimeoutMsFieldNumber, "limits.rank_timeout_ms", limits.rank_timeout_ms(), 1000,
            kDay},
      Range{Limits::kMaxTablesFieldNumber, "limits.max_tables", limits.max_tables(), 1, 100'000},
      Range{Limits::kMaxLedgerMibFieldNumber, "limits.max_ledger_mib", limits.max_ledger_mib(), 1,
            kMostLedgerMib},
      Range{Limits::kStepTimeoutMsFieldNumber, "limits.step_timeout_ms", limits.step_timeout_ms(), 1, kDay},
      Range{Limits::kCollectiveTimeoutMsFieldNumber, "limits.collective_timeout_ms",
            limits.collective_timeout_ms(), 1000, kDay},
      // With less than 110 percent, keys that are not chosen to collide could reach the limit
      // (server/engine/rank_limit.h).
      Range{Limits::kMaxRankPercentFieldNumber, "limits.max_rank_percent", limits.max_rank_percent(), 110,
            1'000'000},
      Range{Limits::kMaxEvictedMibFieldNumber, "limits.max_evicted_mib", limits.max_evicted_mib(), 1,
            1 << 20}};
  const auto path = [](int field) { return ConfigPath{{ServerConfig::kLimitsFieldNumber}, {field}}; };
  for (const Range& range : ranges) {
    if (range.value != 0)
      CheckRange(report, path(range.field), range);  // 0: depends on the memory (fit_limits.h)
  }
  if (limits.max_calls() != 0 && limits.max_calls() < 4 * limits.max_calls_per_connection()) {
    report.Refuse(path(Limits::kMaxCallsFieldNumber), "limits.max_calls", std::to_string(limits.max_calls()),
                  "must be four times limits.max_calls_per_connection at least, which is " +
                      std::to_string(limits.max_calls_per_connection()));
  }
  if (limits.max_queue_mib() != 0 && limits.max_queue_mib() < limits.max_message_mib()) {
    report.Refuse(
        path(Limits::kMaxQueueMibFieldNumber), "limits.max_queue_mib", std::to_string(limits.max_queue_mib()),
        "must not be below limits.max_message_mib, which is " + std::to_string(limits.max_message_mib()));
  }
}

void CheckDurability(const v1::Durability& durability, const Report& report) {
  using v1::Durability;
  const auto path = [](int field) { return ConfigPath{{ServerConfig::kDurabilityFieldNumber}, {field}}; };
  constexpr std::uint32_t kMonth = 31U * 24 * 3600;
  for (const Range& range :
       {Range{Durability::kIntervalSFieldNumber, "durability.interval_s", durability.interval_s(), 1, kMonth},
        Range{Durability::kCheckpointEverySFieldNumber, "durability.checkpoint_every_s",
              durability.checkpoint_every_s(), 0, kMonth},
        Range{Durability::kKeepFieldNumber, "durability.keep", durability.keep(), 1, 1000},
        Range{Durability::kMaxDeltasFieldNumber, "durability.max_deltas", durability.max_deltas(), 1, 1000},
        Range{Durability::kMaxCopyOnWriteMibFieldNumber, "durability.max_copy_on_write_mib",
              durability.max_copy_on_write_mib(), 1, 1 << 24}}) {
    if (range.value != 0) CheckRange(report, path(range.field), range);  // 0: depends on the memory
  }
  const ConfigPath mode = path(Durability::kModeFieldNumber);
  if (!v1::DurabilityMode_IsValid(durability.mode())) {
    report.Refuse(mode, "durability.mode", std::to_string(durability.mode()),
                  "must be " + LegalNames(*v1::DurabilityMode_descriptor()));
  } else if (durability.folder().empty() && durability.mode() != v1::DURABILITY_MODE_NONE) {
    report.Refuse(mode, "durability.mode", v1::DurabilityMode_Name(durability.mode()),
                  "needs durability.folder, or --data");
  }
}

bool IsOfName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

ConfigPath Below(ConfigPath path, int field, int index = -1) {
  path.push_back({field, index});
  return path;
}

void CheckGrant(const v1::Grant& grant, const ConfigPath& path, const std::string& field,
                const Report& report) {
  const bool is_all = grant.table() == kAllTables;
  if (!is_all && !ValidateTableName(grant.table()).ok()) {
    report.Refuse(Below(path, v1::Grant::kTableFieldNumber), field + ".table", QuotedHost(grant.table()),
                  "must be a table's name, or *: all tables");
  }
  for (int i = 0; i < grant.rights_size(); ++i) {
    const int right = grant.rights(i);
    const ConfigPath its = Below(path, v1::Grant::kRightsFieldNumber, i);
    if (!v1::Right_IsValid(right) || right == v1::RIGHT_UNSPECIFIED) {
      report.Refuse(its, field + ".rights", std::to_string(right),
                    "must be " + LegalNames(*v1::Right_descriptor()));
    } else if (right == v1::RIGHT_OBSERVE && !is_all) {
      report.Refuse(its, field + ".rights", "RIGHT_OBSERVE", "is of the server: its table must be *");
    }
  }
  if (grant.rights().empty()) report.Add(path, field + " has no rights");
}

void CheckPrincipal(const v1::Principal& principal, bool has_certificates, const ConfigPath& path,
                    const std::string& field, const Report& report) {
  constexpr std::size_t kMostCharacters = 64;
  if (principal.name().empty() || principal.name().size() > kMostCharacters ||
      !std::ranges::all_of(principal.name(), IsOfName)) {
    report.Refuse(Below(path, v1::Principal::kNameFieldNumber), field + ".name", QuotedHost(principal.name()),
                  "must be 1 to 64 letters, digits, '_', '-' and '.'");
  }
  if (principal.token_file().empty() && principal.certificate_name().empty()) {
    report.Add(path, field + " (" + QuotedHost(principal.name()) +
                         ") has neither a token_file nor a certificate_name: no caller could be it");
  }
  if (!principal.certificate_name().empty() && !has_certificates) {
    report.Refuse(Below(path, v1::Principal::kCertificateNameFieldNumber), field + ".certificate_name",
                  QuotedHost(principal.certificate_name()), "needs security.tls.client_ca_file");
  }
  for (int i = 0; i < principal.grants_size(); ++i) {
    CheckGrant(principal.grants(i), Below(path, v1::Principal::kGrantsFieldNumber, i),
               field + ".grants[" + std::to_string(i) + "]", report);
  }
}

void CheckPrincipals(const v1::Security& security, const ConfigPath& path, const Report& report) {
  std::set<std::string_view> names;
  std::set<std::string_view> certificates;
  for (int i = 0; i < security.principals_size(); ++i) {
    const v1::Principal& principal = security.principals(i);
    const ConfigPath its = Below(path, v1::Security::kPrincipalsFieldNumber, i);
    const std::string field = "security.principals[" + std::to_string(i) + "]";
    CheckPrincipal(principal, !security.tls().client_ca_file().empty(), its, field, report);
    if (const std::string& name = principal.certificate_name();
        !name.empty() && !certificates.insert(name).second) {
      report.Refuse(Below(its, v1::Principal::kCertificateNameFieldNumber), field + ".certificate_name",
                    QuotedHost(name), "another principal has that name");
    }
    if (!names.insert(principal.name()).second) {
      report.Refuse(Below(its, v1::Principal::kNameFieldNumber), field + ".name",
                    QuotedHost(principal.name()), "another principal has that name");
    }
  }
}

void CheckSecurity(const v1::Security& security, const Report& report) {
  const ConfigPath path{{ServerConfig::kSecurityFieldNumber}};
  const v1::Tls& tls = security.tls();
  if (security.has_tls() && (tls.certificate_file().empty() || tls.key_file().empty())) {
    report.Add(Below(path, v1::Security::kTlsFieldNumber),
               "security.tls needs a certificate_file and a key_file");
  }
  constexpr int kMostPrincipals = 1024;
  if (security.principals_size() > kMostPrincipals) {
    report.Refuse(Below(path, v1::Security::kPrincipalsFieldNumber, kMostPrincipals), "security.principals",
                  std::to_string(security.principals_size()) + " principals",
                  "at most " + std::to_string(kMostPrincipals));
  }
  constexpr int kMostUsers = 1024;
  if (security.local_users_size() > kMostUsers) {
    report.Refuse(Below(path, v1::Security::kLocalUsersFieldNumber, kMostUsers), "security.local_users",
                  std::to_string(security.local_users_size()) + " users",
                  "at most " + std::to_string(kMostUsers));
  }
  if (security.local_users_size() > 0 && security.principals_size() == 0) {
    report.Add(Below(path, v1::Security::kLocalUsersFieldNumber, 0),
               "security.local_users needs security.principals: without them, all users of the host may do "
               "everything");
  }
  CheckPrincipals(security, path, report);
}

void CheckTables(const ServerConfig& config, const Report& report) {
  const auto path = [](int table) { return ConfigPath{{ServerConfig::kTablesFieldNumber, table}}; };
  const auto tables = static_cast<std::uint32_t>(config.tables_size());
  if (const std::uint32_t most = config.limits().max_tables(); tables > most) {
    report.Refuse(path(static_cast<int>(most)), "tables", std::to_string(tables) + " tables",
                  "limits.max_tables allows " + std::to_string(most));
  }
  std::set<std::string_view> names;
  for (int table = 0; table < config.tables_size(); ++table) {
    const std::string& name = config.tables(table).name();
    if (names.insert(name).second) continue;
    report.Refuse(path(table), "tables[" + std::to_string(table) + "].name", QuotedHost(name),
                  "another table has that name");
  }
}

// An address at which a rank listens.
struct Listening {
  int number;
  std::string_view field;
  const std::string& text;
  std::optional<HostPort> address = std::nullopt;  // none: not configured, or the text is wrong

  ConfigPath path() const { return {{number}}; }
};

// An address that other machines can reach has to be allowed.
void CheckWhoReaches(const ServerConfig& config, const Listening& listening, const Report& report) {
  if (!listening.address || IsLoopback(listening.address->host) || config.insecure()) return;
  const bool is_listen = listening.number == ServerConfig::kListenFieldNumber;
  const bool knows_whom =
      config.security().principals_size() > 0 || !config.security().tls().client_ca_file().empty();
  if (is_listen ? config.security().has_tls() && knows_whom : config.insecure_metrics()) return;
  std::string rule =
      "other machines may reach it, without both authentication and encryption: name a loopback address, "
      "such as 127.0.0.1, or, on a private network, say insecure: true (--insecure)";
  rule += is_listen ? ", or have security.tls, with principals or a client_ca_file"
                    : " or insecure_metrics: true";
  report.Refuse(listening.path(), listening.field, QuotedHost(listening.text), rule);
}

// Reports two fields that name the same port of an address, because both cannot listen.
void CheckPorts(const Listening& later, const Listening& earlier, const Report& report) {
  if (!later.address || !earlier.address) return;
  const HostPort& here = *later.address;
  const HostPort& there = *earlier.address;
  if (here.port == 0 || here.port != there.port) return;
  if (here.host != there.host && !IsWildcard(here.host) && !IsWildcard(there.host)) return;
  report.Refuse(later.path(), later.field, QuotedHost(later.text),
                std::string(earlier.field) + " takes that port: " + QuotedHost(earlier.text));
}

void CheckAddresses(const ServerConfig& config, const Report& report) {
  std::array<Listening, 3> all{
      {{ServerConfig::kListenFieldNumber, "listen", config.listen()},
       {ServerConfig::kMetricsListenFieldNumber, "metrics_listen", config.metrics_listen()},
       {ServerConfig::kHealthListenFieldNumber, "health_listen", config.health_listen()}}};
  for (Listening& listening : all) {
    if (listening.text.empty()) continue;
    if (const auto address = ParseHostPort(listening.text); address.ok()) {
      listening.address = *address;
    } else {
      report.Add(listening.path(), std::string(listening.field) + ": " + address.status().message());
    }
    for (const Listening* earlier = all.data(); earlier != &listening; ++earlier)
      CheckPorts(listening, *earlier, report);
    if (listening.number != ServerConfig::kHealthListenFieldNumber)
      CheckWhoReaches(config, listening, report);
  }
  // advertise_host must be a host without a port, because every rank adds its own port.
  if (!config.advertise_host().empty() && !ParseHostPort(config.advertise_host() + ":0").ok()) {
    report.Refuse({{ServerConfig::kAdvertiseHostFieldNumber}}, "advertise_host",
                  QuotedHost(config.advertise_host()), "must be a host's name or address, without a port");
  }
}

}  // namespace

void CheckConfig(const ServerConfig& config, const ConfigPlaces& where, ConfigErrors& errors) {
  const Report report{where, errors};
  CheckAddresses(config, report);
  CheckRange(report, {{ServerConfig::kThreadsFieldNumber}},
             {ServerConfig::kThreadsFieldNumber, "threads", config.threads(), 0, 4096});
  if (std::ranges::find(kLogLevels, config.log_level()) == kLogLevels.end()) {
    report.Refuse({{ServerConfig::kLogLevelFieldNumber}}, "log_level", QuotedHost(config.log_level()),
                  "must be trace, debug, info, warning or error");
  }
  const auto check_enum = [&](int number, std::string_view field, int value,
                              const google::protobuf::EnumDescriptor& type) {
    if (type.FindValueByNumber(value) == nullptr)
      report.Refuse({{number}}, field, std::to_string(value), "must be " + LegalNames(type));
  };
  check_enum(ServerConfig::kBackendFieldNumber, "backend", config.backend(), *v1::Backend_descriptor());
  check_enum(ServerConfig::kLogFormatFieldNumber, "log_format", config.log_format(),
             *v1::LogFormat_descriptor());
  check_enum(ServerConfig::kPartialSumsFieldNumber, "partial_sums", config.partial_sums(),
             *v1::DataType_descriptor());
  CheckLimits(config.limits(), report);
  CheckDurability(config.durability(), report);
  CheckSecurity(config.security(), report);
  CheckTables(config, report);
}

}  // namespace slotwise
