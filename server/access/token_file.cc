#include "server/access/token_file.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "server/access/small_file.h"

namespace slotwise {
namespace {

constexpr std::size_t kMostTokens = 16;
constexpr std::size_t kMostFileBytes = kMostTokens * (kMostTokenBytes + 2);

bool IsOfToken(char c) { return c > ' ' && c < '\x7f'; }

}  // namespace

Result<TokenDigest> DigestOf(std::string_view token) {
  TokenDigest digest{};
  unsigned int size = 0;
  if (EVP_Digest(token.data(), token.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 ||
      size != digest.size()) {
    return Status(StatusCode::kInternal, "OpenSSL cannot make a SHA-256");
  }
  return digest;
}

bool SameDigest(const TokenDigest& one, const TokenDigest& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

Result<std::vector<TokenDigest>> ReadTokens(const std::string& path) {
  const auto text = ReadSmallFile(path, kMostFileBytes);
  if (!text.ok()) return InvalidArgument("cannot read " + path + ": " + text.status().message());
  std::vector<TokenDigest> tokens;
  std::string_view rest = text->view();
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view token = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (token.ends_with('\r')) token.remove_suffix(1);
    if (token.empty()) continue;
    const std::string place = path + ":" + std::to_string(line) + ": ";
    if (token.size() < kLeastTokenBytes || token.size() > kMostTokenBytes) {
      return InvalidArgument(place + "a token of " + std::to_string(token.size()) +
                             " characters: must have " + std::to_string(kLeastTokenBytes) + " to " +
                             std::to_string(kMostTokenBytes));
    }
    if (!std::ranges::all_of(token, IsOfToken)) {
      return InvalidArgument(place + "a token has a character that is not printable ASCII, or a space");
    }
    auto digest = DigestOf(token);
    if (!digest.ok()) return digest.status();
    tokens.push_back(*digest);
  }
  if (tokens.empty()) return InvalidArgument(path + " has no token");
  if (tokens.size() > kMostTokens) {
    return InvalidArgument(path + " has " + std::to_string(tokens.size()) + " tokens: at most " +
                           std::to_string(kMostTokens));
  }
  return tokens;
}

}  // namespace slotwise
