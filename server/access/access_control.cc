#include "server/access/access_control.h"

#include <openssl/evp.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace slotwise {
namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr std::string_view kBasic = "basic ";

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Schemes of HTTP's authentication are compared without regard to case (RFC 9110, 11.1).
bool HasScheme(std::string_view authorization, std::string_view scheme) {
  return authorization.size() > scheme.size() &&
         std::ranges::equal(authorization.substr(0, scheme.size()), scheme,
                            [](char a, char b) { return Lower(a) == b; });
}

// Returns the password of "NAME:PASSWORD" in base64; empty: it is none.
std::string PasswordIn(std::string_view base64) {
  constexpr std::size_t kMost = 2 * kMostTokenBytes;
  if (base64.empty() || base64.size() > kMost || base64.size() % 4 != 0) return {};
  std::vector<unsigned char> text(base64.size());
  const int size = EVP_DecodeBlock(text.data(), reinterpret_cast<const unsigned char*>(base64.data()),
                                   static_cast<int>(base64.size()));
  if (size < 0) return {};
  // The padding was decoded to zeros.
  const auto padding = base64.ends_with("==") ? 2 : base64.ends_with('=') ? 1 : 0;
  const std::string pair(text.begin(), text.begin() + (size - padding));
  const std::size_t colon = pair.find(':');
  return colon == std::string::npos ? std::string() : pair.substr(colon + 1);
}

// Returns what differs between a file and the one that comes in its place; empty: there is none.
std::string StampOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return std::to_string(status.st_dev) + " " + std::to_string(status.st_ino) + " " +
         std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

}  // namespace

Result<std::unique_ptr<AccessControl>> AccessControl::Make(std::vector<KnownPrincipal> known,
                                                           std::chrono::milliseconds look_every) {
  std::unique_ptr<AccessControl> access(new AccessControl(std::move(known)));
  if (Status read = access->ReadAll(); !read.ok()) return read;
  const bool has_files =
      std::ranges::any_of(access->known_, [](const Known& one) { return !one.options.token_file.empty(); });
  if (has_files) access->watch_ = std::thread([&access = *access, look_every] { access.Watch(look_every); });
  return access;
}

AccessControl::AccessControl(std::vector<KnownPrincipal> known) {
  for (KnownPrincipal& options : known) {
    auto principal = std::make_shared<Principal>();
    principal->name = options.name;
    principal->grants = options.grants;
    principal->refused = refused_;
    known_.push_back({.options = std::move(options), .principal = std::move(principal)});
  }
}

AccessControl::~AccessControl() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (watch_.joinable()) watch_.join();
}

Status AccessControl::ReadAll() {
  for (Known& one : known_) {
    if (one.options.token_file.empty()) continue;
    one.stamp = StampOf(one.options.token_file);
    auto tokens = ReadTokens(one.options.token_file);
    if (!tokens.ok()) {
      return InvalidArgument("the token_file of principal " + one.options.name + ": " +
                             tokens.status().message());
    }
    one.tokens = std::move(*tokens);
  }
  for (const Known& one : known_) {
    for (const Known& other : known_) {
      if (&one == &other) break;
      const bool common = std::ranges::any_of(one.tokens, [&other](const TokenDigest& token) {
        return std::ranges::count(other.tokens, token) > 0;
      });
      if (common) {
        return InvalidArgument("principals " + other.options.name + " and " + one.options.name +
                               " have a token in common: nobody could say who calls");
      }
    }
  }
  return {};
}

void AccessControl::Watch(std::chrono::milliseconds look_every) {
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, look_every, [this] { return stop_; })) {
    lock.unlock();
    ReadWhatChanged();
    lock.lock();
  }
}

// Only this thread writes tokens and stamps, so it reads them without the lock.
void AccessControl::ReadWhatChanged() {
  for (Known& one : known_) {
    const std::string& path = one.options.token_file;
    if (path.empty()) continue;
    std::string stamp = StampOf(path);
    if (stamp == one.stamp) continue;
    auto tokens = ReadTokens(path);
    for (const Known& other : known_) {
      if (!tokens.ok() || &other == &one) continue;
      for (const TokenDigest& token : *tokens) {
        if (std::ranges::count(other.tokens, token) == 0) continue;
        tokens = InvalidArgument(path + " has a token of principal " + other.options.name);
        break;
      }
    }
    if (!tokens.ok()) {
      spdlog::error("the tokens of {} stay as they were: {}", one.options.name, tokens.status().message());
    } else {
      spdlog::info("the tokens of {} are read again: {} token(s)", one.options.name, tokens->size());
    }
    const std::lock_guard lock(mutex_);
    one.stamp = std::move(stamp);
    if (tokens.ok()) one.tokens = std::move(*tokens);
  }
}

PrincipalPtr AccessControl::Nobody(std::string why) const {
  refused_->unauthenticated.fetch_add(1, std::memory_order_relaxed);
  auto nobody = std::make_shared<Principal>();
  nobody->refusal = Unauthenticated(std::move(why));
  return nobody;
}

PrincipalPtr AccessControl::Authenticate(std::string_view authorization,
                                         std::span<const std::string> certificate_names) const {
  if (open()) return nullptr;
  if (!authorization.empty()) {
    if (HasScheme(authorization, kBearer)) return AuthenticateToken(authorization.substr(kBearer.size()));
    return Nobody("the call's authorization is no bearer token");
  }
  for (const Known& one : known_) {
    if (one.options.certificate_name.empty()) continue;
    if (std::ranges::count(certificate_names, one.options.certificate_name) > 0) return one.principal;
  }
  return Nobody(certificate_names.empty()
                    ? "the call has no token, and this server serves nobody without one"
                    : "the call has no token, and its certificate names nobody whom this "
                      "server knows");
}

PrincipalPtr AccessControl::AuthenticateToken(std::string_view token) const {
  if (open()) return nullptr;
  const auto digest = DigestOf(token.substr(0, kMostTokenBytes + 1));
  if (!digest.ok()) return Nobody(digest.status().message());
  PrincipalPtr found;
  {
    // All are compared, so that the time says nothing of which one it is.
    const std::lock_guard lock(mutex_);
    for (const Known& one : known_) {
      for (const TokenDigest& known : one.tokens) {
        if (SameDigest(known, *digest)) found = one.principal;
      }
    }
  }
  return found ? found : Nobody("this server does not know the call's token");
}

PrincipalPtr AccessControl::AuthenticateHttp(std::string_view authorization) const {
  if (!open() && HasScheme(authorization, kBasic))
    return AuthenticateToken(PasswordIn(authorization.substr(kBasic.size())));
  return Authenticate(authorization, {});
}

RefusedAccessCounts AccessControl::Refused() const {
  return {.unauthenticated = refused_->unauthenticated.load(std::memory_order_relaxed),
          .permission_denied = refused_->permission_denied.load(std::memory_order_relaxed)};
}

}  // namespace slotwise
