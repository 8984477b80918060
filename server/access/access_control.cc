#include "server/access/access_control.h"

#include <openssl/evp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "server/access/small_file.h"

namespace slotwise {
namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr std::string_view kBasic = "basic ";
constexpr const char* kNoToken = "the call has no token, and this server serves no call without one";

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Schemes of HTTP's authentication are compared without regard to case (RFC 9110, 11.1).
bool HasScheme(std::string_view authorization, std::string_view scheme) {
  return authorization.size() > scheme.size() &&
         std::ranges::equal(authorization.substr(0, scheme.size()), scheme,
                            [](char a, char b) { return Lower(a) == b; });
}

// Returns the password of "NAME:PASSWORD" in base64; empty: the text is not that.
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

bool HaveCommon(const std::vector<TokenDigest>& one, const std::vector<TokenDigest>& other) {
  return std::ranges::any_of(
      one, [&other](const TokenDigest& token) { return std::ranges::count(other, token) > 0; });
}

}  // namespace

Result<std::unique_ptr<AccessControl>> AccessControl::Make(std::vector<KnownPrincipal> known,
                                                           std::vector<std::uint32_t> local_users,
                                                           std::chrono::milliseconds look_every) {
  std::vector<TokenError> errors;
  auto access = Make(std::move(known), std::move(local_users), errors, look_every);
  if (!errors.empty()) return InvalidArgument(errors.front().message);
  return access;
}

std::unique_ptr<AccessControl> AccessControl::Make(std::vector<KnownPrincipal> known,
                                                   std::vector<std::uint32_t> local_users,
                                                   std::vector<TokenError>& errors,
                                                   std::chrono::milliseconds look_every) {
  std::unique_ptr<AccessControl> access(new AccessControl(std::move(known), std::move(local_users)));
  errors = access->ReadAll();
  if (!errors.empty()) return nullptr;
  const bool has_files =
      std::ranges::any_of(access->known_, [](const Known& one) { return !one.options.token_file.empty(); });
  if (has_files) access->watch_ = std::thread([&access = *access, look_every] { access.Watch(look_every); });
  return access;
}

AccessControl::AccessControl(std::vector<KnownPrincipal> known, std::vector<std::uint32_t> local_users)
    : local_users_(std::move(local_users)) {
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

std::vector<TokenError> AccessControl::ReadAll() {
  std::vector<TokenError> errors;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    Known& one = known_[i];
    const std::string& file = one.options.token_file;
    if (file.empty()) continue;
    one.stamp = one.seen = StampOf(file);
    if (auto tokens = ReadTokens(file); tokens.ok()) {
      one.tokens = std::move(*tokens);
    } else {
      errors.push_back(
          {i, "the token_file of principal " + one.options.name + ": " + tokens.status().message()});
    }
  }
  for (std::size_t i = 0; i < known_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!HaveCommon(known_[i].tokens, known_[j].tokens)) continue;
      errors.push_back({i, "principals " + known_[j].options.name + " and " + known_[i].options.name +
                               " have a token in common, which would not say who calls"});
      break;
    }
  }
  return errors;
}

void AccessControl::Watch(std::chrono::milliseconds look_every) {
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, look_every, [this] { return stop_; })) {
    lock.unlock();
    ReadWhatChanged();
    lock.lock();
  }
}

std::optional<Result<std::vector<TokenDigest>>> AccessControl::ReadIfChanged(Known& one) const {
  if (one.options.token_file.empty()) return std::nullopt;
  std::string stamp = StampOf(one.options.token_file);
  const bool rests = stamp == std::exchange(one.seen, stamp);
  if (!rests || stamp == one.stamp) return std::nullopt;
  return ReadTokens(one.options.token_file);
}

// Only this thread writes tokens, so it reads them without the lock. Tokens may move between files, so all
// files are read first, and then compared with the tokens that the others will have.
void AccessControl::ReadWhatChanged() {
  std::vector<std::optional<Result<std::vector<TokenDigest>>>> read;
  for (Known& one : known_) read.push_back(ReadIfChanged(one));
  const auto tokens_of = [&](std::size_t i) -> const std::vector<TokenDigest>& {
    return read[i] && read[i]->ok() ? **read[i] : known_[i].tokens;
  };
  for (bool again = true; again;) {  // if one keeps its old tokens, another may conflict
    again = false;
    for (std::size_t i = 0; i < known_.size(); ++i) {
      for (std::size_t j = 0; read[i] && read[i]->ok() && j < known_.size(); ++j) {
        if (i == j || !HaveCommon(tokens_of(i), tokens_of(j))) continue;
        read[i] = Result<std::vector<TokenDigest>>(InvalidArgument(
            known_[i].options.token_file + " has a token of principal " + known_[j].options.name));
        again = true;
      }
    }
  }
  for (std::size_t i = 0; i < known_.size(); ++i) {
    if (!read[i]) continue;
    Known& one = known_[i];
    const std::string& name = one.options.name;
    if (!read[i]->ok()) {
      const std::string trouble = read[i]->status().message();
      if (trouble != one.trouble) spdlog::error("the tokens of {} stay as they were: {}", name, trouble);
      one.trouble = trouble;
      continue;
    }
    spdlog::info("the tokens of {} are read again: {} token(s)", name, (*read[i])->size());
    one.trouble.clear();
    one.stamp = one.seen;
    const std::lock_guard lock(tokens_mutex_);
    one.tokens = std::move(**read[i]);
  }
}

PrincipalPtr AccessControl::Unknown(std::string why) const {
  refused_->unauthenticated.fetch_add(1, std::memory_order_relaxed);
  auto unknown = std::make_shared<Principal>();
  unknown->refusal = Unauthenticated(std::move(why));
  return unknown;
}

PrincipalPtr AccessControl::Authenticate(std::string_view authorization,
                                         std::span<const std::string> certificate_names) const {
  if (open()) return nullptr;
  if (!authorization.empty()) {
    if (HasScheme(authorization, kBearer)) return AuthenticateToken(authorization.substr(kBearer.size()));
    return Unknown("the call's authorization is no bearer token");
  }
  PrincipalPtr named;
  for (const Known& one : known_) {
    if (one.options.certificate_name.empty()) continue;
    if (std::ranges::count(certificate_names, one.options.certificate_name) == 0) continue;
    if (named)
      return Unknown("the call has no token, and its certificate names more than one whom this server knows");
    named = one.principal;
  }
  if (named) return named;
  return Unknown(certificate_names.empty()
                     ? kNoToken
                     : "the call has no token, and its certificate names no caller that this "
                       "server knows");
}

PrincipalPtr AccessControl::AuthenticateToken(std::string_view token) const {
  if (open()) return nullptr;
  if (token.empty()) return Unknown(kNoToken);
  const auto digest = DigestOf(token.substr(0, kMostTokenBytes + 1));
  if (!digest.ok()) return Unknown(digest.status().message());
  PrincipalPtr found;
  {
    // Compares all, so that the time does not show which one matches.
    const std::shared_lock lock(tokens_mutex_);
    for (const Known& one : known_) {
      for (const TokenDigest& known : one.tokens) {
        if (SameDigest(known, *digest)) found = one.principal;
      }
    }
  }
  return found ? found : Unknown("this server does not know the call's token");
}

PrincipalPtr AccessControl::AuthenticateHttp(std::string_view authorization) const {
  if (!open() && HasScheme(authorization, kBasic))
    return AuthenticateToken(PasswordIn(authorization.substr(kBasic.size())));
  return Authenticate(authorization, {});
}

bool AccessControl::LetsIn(std::uint32_t user) const {
  if (open() || user == geteuid() || std::ranges::count(local_users_, user) > 0) return true;
  refused_->unauthenticated.fetch_add(1, std::memory_order_relaxed);
  return false;
}

RefusedAccessCounts AccessControl::Refused() const {
  return {.unauthenticated = refused_->unauthenticated.load(std::memory_order_relaxed),
          .permission_denied = refused_->permission_denied.load(std::memory_order_relaxed)};
}

}  // namespace slotwise
