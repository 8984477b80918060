#include "server/access/token_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace slotwise {
namespace {

constexpr std::size_t kMostTokens = 16;
constexpr std::size_t kMostFileBytes = kMostTokens * (kMostTokenBytes + 2);

// What a file has, which is wiped out of memory when it is no longer needed.
struct SecretText {
  SecretText() = default;
  ~SecretText() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  SecretText(const SecretText&) = delete;
  SecretText& operator=(const SecretText&) = delete;

  std::vector<char> bytes = std::vector<char>(kMostFileBytes + 1);
  std::size_t size = 0;
};

// Fills `to`, or as much of it as the file has, without a library's buffer between.
Status ReadAll(const std::string& path, SecretText& to) {
  // Whoever opens a FIFO or a device may wait for ever, or read for ever.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return InvalidArgument("cannot read " + path + ": " + std::strerror(errno));
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file);
    return InvalidArgument("cannot read " + path + ": it is no file");
  }
  ssize_t read_now = 0;
  do {
    read_now = read(file, to.bytes.data() + to.size, to.bytes.size() - to.size);
    if (read_now > 0) to.size += static_cast<std::size_t>(read_now);
  } while ((read_now > 0 && to.size < to.bytes.size()) || (read_now < 0 && errno == EINTR));
  const int error = errno;
  close(file);
  if (read_now < 0) return InvalidArgument("cannot read " + path + ": " + std::strerror(error));
  return {};
}

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
  SecretText text;
  if (Status status = ReadAll(path, text); !status.ok()) return status;
  if (text.size > kMostFileBytes) return InvalidArgument(path + " is too long for a file of tokens");
  std::vector<TokenDigest> tokens;
  std::string_view rest(text.bytes.data(), text.size);
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
