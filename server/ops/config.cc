#include "server/ops/config.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "server/ops/config_check.h"
#include "server/ops/config_text.h"

namespace slotwise {
namespace {

constexpr std::size_t kLargestFile = std::size_t{16} << 20;

// Fills in every default that config.proto names, except those that depend on the memory (fit_limits.h). Only
// this function does so.
void FillDefaults(v1::ServerConfig& config) {
  if (config.listen().empty()) config.set_listen("127.0.0.1:7070");
  if (config.backend() == v1::BACKEND_UNSPECIFIED) config.set_backend(v1::BACKEND_AUTO);
  if (config.log_level().empty()) config.set_log_level("info");
  if (config.log_format() == v1::LOG_FORMAT_UNSPECIFIED) config.set_log_format(v1::LOG_FORMAT_TEXT);
  if (config.partial_sums() == v1::DATA_TYPE_UNSPECIFIED) config.set_partial_sums(v1::DATA_TYPE_FLOAT32);
  v1::Durability& durability = *config.mutable_durability();
  if (durability.mode() == v1::DURABILITY_MODE_UNSPECIFIED) durability.set_mode(v1::DURABILITY_MODE_NONE);
  if (durability.interval_s() == 0) durability.set_interval_s(30);
  if (durability.checkpoint_every_s() == 0 && durability.mode() == v1::DURABILITY_MODE_SYNC)
    durability.set_checkpoint_every_s(600);
  if (durability.keep() == 0) durability.set_keep(2);
  if (durability.max_deltas() == 0) durability.set_max_deltas(16);
  v1::Limits& limits = *config.mutable_limits();
  if (limits.max_calls_per_connection() == 0) limits.set_max_calls_per_connection(256);
  if (limits.reply_timeout_ms() == 0) limits.set_reply_timeout_ms(30'000);
  if (limits.rank_timeout_ms() == 0) limits.set_rank_timeout_ms(10'000);
  if (limits.max_tables() == 0) limits.set_max_tables(1024);
  if (limits.step_timeout_ms() == 0) limits.set_step_timeout_ms(60'000);
  if (limits.collective_timeout_ms() == 0) limits.set_collective_timeout_ms(60'000);
  if (limits.max_rank_percent() == 0) limits.set_max_rank_percent(150);
}

// A field of limits or durability, and its name in 0.1, which is still accepted.
struct OlderName {
  int message;
  int older;
  int field;
};
constexpr std::array kOlderNames{
    OlderName{v1::ServerConfig::kLimitsFieldNumber, v1::Limits::kMaxInboxMibFieldNumber,
              v1::Limits::kMaxQueueMibFieldNumber},
    OlderName{v1::ServerConfig::kLimitsFieldNumber, v1::Limits::kMaxGpuArenaMibFieldNumber,
              v1::Limits::kMaxGpuSharedMibFieldNumber},
    OlderName{v1::ServerConfig::kDurabilityFieldNumber, v1::Durability::kMaxPreimageMibFieldNumber,
              v1::Durability::kMaxCopyOnWriteMibFieldNumber}};

// Moves the values of fields with older names to the present names. A field that has both is an error.
void TakeOlderNames(Config& config, ConfigErrors& errors) {
  const auto& of_config = *config.values.GetReflection();
  for (const OlderName& name : kOlderNames) {
    const auto* const in = v1::ServerConfig::descriptor()->FindFieldByNumber(name.message);
    google::protobuf::Message& message = *of_config.MutableMessage(&config.values, in);
    const auto& reflection = *message.GetReflection();
    const auto* const older = message.GetDescriptor()->FindFieldByNumber(name.older);
    const auto* const field = message.GetDescriptor()->FindFieldByNumber(name.field);
    const std::uint32_t value = reflection.GetUInt32(message, older);
    if (value == 0) continue;
    const ConfigPath path{{name.message}, {name.older}};
    if (reflection.GetUInt32(message, field) != 0) {
      errors.Add(config.places.At(path), in->name() + "." + older->name() + " is the older name of " +
                                             in->name() + "." + field->name() + ": give the latter alone");
    } else {
      reflection.SetUInt32(&message, field, value);
      config.places.SetOlderName({{name.message}, {name.field}}, path);
    }
    reflection.ClearField(&message, older);
  }
}

// Returns a file's contents, or the reason why they cannot be read.
Result<std::string> ReadText(const std::string& path) {
  // C's file functions tell an empty file from a folder and from an error, and errno has the reason.
  const auto close = [](std::FILE* open) { std::fclose(open); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "r"));
  std::string text;
  if (file) {
    std::array<char, 4096> block;
    while (const std::size_t size = std::fread(block.data(), 1, block.size(), file.get())) {
      text.append(block.data(), size);
      if (text.size() > kLargestFile) {
        return InvalidArgument("the configuration " + path + " is longer than " +
                               std::to_string(kLargestFile) + " bytes");
      }
    }
  }
  if (!file || std::ferror(file.get())) {
    return NotFound("cannot read the configuration " + path + ": " + std::strerror(errno));
  }
  return text;
}

}  // namespace

Config ParseConfig(const std::string& text, const std::string& file, const std::vector<FieldFlag>& flags,
                   ConfigErrors& errors) {
  v1::ServerConfig values;
  const auto tree = ParseConfigText(text, file, values, errors);
  Config config{.values = std::move(values), .places = ConfigPlaces(file, tree)};
  TakeOlderNames(config, errors);
  for (const FieldFlag& flag : flags) {
    flag.set(config.values);
    config.places.SetFlag(flag.path, flag.flag);
  }
  FillDefaults(config.values);
  if (tree != nullptr) CheckConfig(config.values, config.places, errors);
  return config;
}

Result<Config> ParseConfig(const std::string& text, const std::string& file) {
  ConfigErrors errors;
  Config config = ParseConfig(text, file, {}, errors);
  if (!errors.empty()) return errors.status();
  return config;
}

Config ReadConfig(const std::string& path, const std::vector<FieldFlag>& flags, ConfigErrors& errors) {
  const auto text = path.empty() ? Result<std::string>(std::string()) : ReadText(path);
  if (text.ok()) return ParseConfig(*text, path, flags, errors);
  errors.Add({}, text.status().message());
  return ParseConfig("", path, {}, errors);
}

std::uint64_t Fingerprint(const Config& config) {
  v1::ServerConfig common;
  *common.mutable_limits() = config.values.limits();
  *common.mutable_tables() = config.values.tables();
  common.set_deterministic(config.values.deterministic());
  common.set_partial_sums(config.values.partial_sums());
  *common.mutable_durability() = config.values.durability();
  // Whether there is TLS, and whether it asks for certificates, is the same on all ranks. The files may have
  // other paths on other hosts.
  if (const v1::Tls& tls = config.values.security().tls(); config.values.security().has_tls()) {
    common.mutable_security()->mutable_tls()->set_certificate_file("any");
    if (!tls.client_ca_file().empty()) common.mutable_security()->mutable_tls()->set_client_ca_file("any");
  }
  *common.mutable_security()->mutable_local_users() = config.values.security().local_users();
  for (v1::Principal principal : config.values.security().principals()) {
    principal.clear_token_file();
    *common.mutable_security()->add_principals() = std::move(principal);
  }

  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    common.SerializeToCodedStream(&out);
  }
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325u;  // FNV-1a
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x0000'0100'0000'01b3u;
  return hash;
}

}  // namespace slotwise
