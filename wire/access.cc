#include "wire/access.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include "slotwise/loopback.h"

namespace slotwise {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
constexpr std::size_t kMostTokenBytes = 4096;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string StampOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return std::to_string(status.st_ino) + " " + std::to_string(status.st_size) + " " +
         std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

// Opening a FIFO or a device, or reading one, may take for ever.
bool IsSmallFile(const std::string& path) {
  constexpr off_t kMostBytes = off_t{1} << 20;
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= kMostBytes;
}

Result<std::string> ReadToken(const std::string& path) {
  std::ifstream file;
  if (IsSmallFile(path)) file.open(path);
  std::string line;
  while (file.is_open() && file && line.empty() && std::getline(file, line)) {
    if (line.ends_with('\r')) line.pop_back();
  }
  if (line.empty()) return InvalidArgument("token_file: " + path + " cannot be read, or has no token");
  const bool printable = std::ranges::all_of(line, [](char c) { return c > ' ' && c < '\x7f'; });
  if (!printable || line.size() > kMostTokenBytes)
    return InvalidArgument("token_file: the first line of " + path + " is no token");
  return line;
}

Status CheckPem(const char* field, const std::string& path, std::string_view what) {
  std::ifstream file;
  if (IsSmallFile(path)) file.open(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.find("-----BEGIN ") != std::string::npos && line.find(what) != std::string::npos) return {};
  }
  return InvalidArgument(std::string(field) + ": " + path + " cannot be read, or has no " +
                         (what == "KEY" ? "key" : "certificate") + " in PEM");
}

bool IsOfThisHost(const std::string& address) {
  return IsLoopback(std::string_view(address).substr(0, address.rfind(':')));
}

}  // namespace

Credentials Credentials::FromEnvironment() {
  return {.token_file = Variable("SLOTWISE_TOKEN_FILE"),
          .ca_file = Variable("SLOTWISE_CA_FILE"),
          .certificate_file = Variable("SLOTWISE_CERTIFICATE_FILE"),
          .key_file = Variable("SLOTWISE_KEY_FILE"),
          .server_name = Variable("SLOTWISE_SERVER_NAME"),
          .insecure = Variable("SLOTWISE_INSECURE") == "1"};
}

Result<std::shared_ptr<Access>> Access::Make(const Credentials& credentials) {
  namespace tls = grpc::experimental;
  const bool has_certificate = !credentials.certificate_file.empty();
  if (has_certificate != !credentials.key_file.empty())
    return InvalidArgument("certificate_file and key_file go together");
  if (has_certificate && !credentials.tls()) return InvalidArgument("certificate_file needs ca_file");
  if (!credentials.server_name.empty() && !credentials.tls())
    return InvalidArgument("server_name needs ca_file");
  std::shared_ptr<Access> access(new Access(credentials));
  if (!credentials.token_file.empty()) {
    auto token = ReadToken(credentials.token_file);
    if (!token.ok()) return token.status();
    access->stamp_ = StampOf(credentials.token_file);
    access->token_ = std::move(*token);
    access->looked_ = std::chrono::steady_clock::now();
  }
  if (!credentials.tls()) {
    access->channel_ = grpc::InsecureChannelCredentials();
    return access;
  }
  if (Status status = CheckPem("ca_file", credentials.ca_file, "CERTIFICATE"); !status.ok()) return status;
  constexpr unsigned int kSeconds = kLookEvery.count();
  std::shared_ptr<tls::FileWatcherCertificateProvider> provider;
  if (has_certificate) {
    Status status = CheckPem("certificate_file", credentials.certificate_file, "CERTIFICATE");
    if (status.ok()) status = CheckPem("key_file", credentials.key_file, "KEY");
    if (!status.ok()) return status;
    provider = std::make_shared<tls::FileWatcherCertificateProvider>(
        credentials.key_file, credentials.certificate_file, credentials.ca_file, kSeconds);
  } else {
    provider = std::make_shared<tls::FileWatcherCertificateProvider>(credentials.ca_file, kSeconds);
  }
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::move(provider));
  options.watch_root_certs();
  if (has_certificate) options.watch_identity_key_cert_pairs();
  access->channel_ = tls::TlsCredentials(options);
  return access;
}

void Access::SetArguments(grpc::ChannelArguments& arguments) const {
  if (!credentials_.server_name.empty()) arguments.SetSslTargetNameOverride(credentials_.server_name);
}

void Access::Add(grpc::ClientContext& context) {
  if (has_token()) context.AddMetadata("authorization", "Bearer " + BareToken());
}

std::string Access::BareToken() {
  if (!has_token()) return {};
  const std::lock_guard lock(mutex_);
  LookAgain();
  return token_;
}

// If the file cannot be read, or has no token, the token stays as it was: the file may be half written.
void Access::LookAgain() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  std::string stamp = StampOf(credentials_.token_file);
  if (stamp == stamp_) return;
  if (auto token = ReadToken(credentials_.token_file); token.ok()) {
    token_ = std::move(*token);
    stamp_ = std::move(stamp);
  }
}

Status Access::Check(const std::string& address) const {
  if (credentials_.token_file.empty() || credentials_.tls() || credentials_.insecure) return {};
  if (IsOfThisHost(address)) return {};
  return InvalidArgument("the token would travel to " + address +
                         " unencrypted: name a ca_file, or, on a private network, say that it is insecure");
}

}  // namespace slotwise
