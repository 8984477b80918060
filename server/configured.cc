#include "server/configured.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "server/access/local_user.h"
#include "server/access/small_file.h"
#include "server/ops/config_places.h"
#include "server/ops/logging.h"
#include "wire/table_options_proto.h"

namespace slotwise {
namespace {

using v1::ServerConfig;

ConfigPath OfSecurity(int field, int index, int its_field) {
  return {{ServerConfig::kSecurityFieldNumber}, {field, index}, {its_field}};
}

Rights RightOf(int right) {
  switch (right) {
    case v1::RIGHT_READ:
      return Rights::kRead;
    case v1::RIGHT_PUSH:
      return Rights::kPush;
    case v1::RIGHT_ROWS:
      return Rights::kRows;
    case v1::RIGHT_ADMIN:
      return Rights::kAdmin;
    case v1::RIGHT_OBSERVE:
      return Rights::kObserve;
    default:
      return Rights::kNone;
  }
}

std::vector<TableOptions> TablesOf(const Config& config, ConfigErrors& errors) {
  std::vector<TableOptions> tables;
  for (int i = 0; i < config.values.tables_size(); ++i) {
    std::vector<Status> wrong;
    tables.push_back(FromProto(config.values.tables(i), wrong));
    const ConfigPlace place = config.places.At({{ServerConfig::kTablesFieldNumber, i}});
    for (const Status& one : wrong) errors.Add(place, "tables[" + std::to_string(i) + "]." + one.message());
  }
  return tables;
}

void CheckTls(const Config& config, ConfigErrors& errors) {
  const v1::Tls& tls = config.values.security().tls();
  const auto place_of = [&](const std::string& field) {
    const int number = v1::Tls::descriptor()->FindFieldByName(field)->number();
    return config.places.At(OfSecurity(v1::Security::kTlsFieldNumber, -1, number));
  };
  if (tls.certificate_file().empty() || tls.key_file().empty()) return;  // CheckConfig says so
  for (const TlsError& error : CheckTlsFiles(TlsFilesOf(tls)))
    errors.Add(place_of(std::string(error.field)), error.message);
  if (const std::string who = WhoElseReads(tls.key_file()); !who.empty())
    errors.Warn(place_of("key_file"), "security.tls.key_file: " + tls.key_file() + ": " + who);
}

std::vector<std::uint32_t> LocalUsersOf(const Config& config, ConfigErrors& errors) {
  std::vector<std::uint32_t> users;
  const v1::Security& security = config.values.security();
  for (int i = 0; i < security.local_users_size(); ++i) {
    const auto number = UserNumberOf(security.local_users(i));
    if (number.ok()) {
      users.push_back(*number);
    } else {
      errors.Add(
          config.places.At({{ServerConfig::kSecurityFieldNumber}, {v1::Security::kLocalUsersFieldNumber, i}}),
          "security.local_users: " + number.status().message());
    }
  }
  return users;
}

KnownPrincipal KnownOf(const v1::Principal& principal) {
  KnownPrincipal known{.name = principal.name(),
                       .token_file = principal.token_file(),
                       .certificate_name = principal.certificate_name()};
  for (const v1::Grant& grant : principal.grants()) {
    Rights rights = Rights::kNone;
    for (const int right : grant.rights()) rights = rights | RightOf(right);
    known.grants.push_back({.table = grant.table(), .rights = rights});
  }
  return known;
}

std::unique_ptr<AccessControl> AccessOf(const Config& config, ConfigErrors& errors) {
  CheckTls(config, errors);
  const auto place_of = [&](int principal) {
    return config.places.At(
        OfSecurity(v1::Security::kPrincipalsFieldNumber, principal, v1::Principal::kTokenFileFieldNumber));
  };
  const auto& principals = config.values.security().principals();
  std::vector<KnownPrincipal> known;
  for (int i = 0; i < principals.size(); ++i) {
    known.push_back(KnownOf(principals[i]));
    const std::string& file = principals[i].token_file();
    std::string warning = WhoElseReads(file);
    if (warning.empty()) continue;
    warning.insert(0, "the token_file of principal " + principals[i].name() + ": " + file + ": ");
    errors.Warn(place_of(i), warning);
  }
  std::vector<TokenError> wrong;
  auto access = AccessControl::Make(std::move(known), LocalUsersOf(config, errors), wrong);
  for (const TokenError& one : wrong) errors.Add(place_of(static_cast<int>(one.principal)), one.message);
  return access;
}

}  // namespace

TlsFiles TlsFilesOf(const v1::Tls& tls) {
  return {.certificate_file = tls.certificate_file(),
          .key_file = tls.key_file(),
          .client_ca_file = tls.client_ca_file()};
}

Configured Configure(const Flags& flags, ConfigErrors& errors) {
  Configured configured{.config = ReadConfig(flags, errors)};
  configured.tables = TablesOf(configured.config, errors);
  configured.access = AccessOf(configured.config, errors);
  ServerConfig& values = configured.config.values;
  if (std::ranges::find(kLogLevels, values.log_level()) == kLogLevels.end()) values.set_log_level("info");
  return configured;
}

}  // namespace slotwise
