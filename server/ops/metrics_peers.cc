#include "server/ops/metrics_peers.h"

#include <civetweb.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "server/access/token_file.h"
#include "server/ops/host_port.h"

namespace slotwise {
namespace {

constexpr std::string_view kBearer = "Bearer ";
// A rank with the largest number of tables has a few MiB of metrics.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

struct CloseConnection {
  void operator()(mg_connection* connection) const { mg_close_connection(connection); }
};

// Returns a rank's metrics; nothing: the rank does not answer.
std::optional<std::string> Fetch(const HostPort& from, const std::string& token) {
  std::array<char, 256> error{};
  const bool bracketed = from.host.starts_with('[');
  const std::string host = bracketed ? from.host.substr(1, from.host.size() - 2) : from.host;
  const std::unique_ptr<mg_connection, CloseConnection> connection(
      mg_connect_client(host.c_str(), from.port, 0, error.data(), error.size()));
  if (!connection) return std::nullopt;
  mg_printf(connection.get(),
            "GET /metrics HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n",
            from.host.c_str(), token.c_str());
  if (mg_get_response(connection.get(), error.data(), error.size(),
                      static_cast<int>(MetricsPeers::kTimeout.count())) < 0)
    return std::nullopt;
  const mg_response_info* const answer = mg_get_response_info(connection.get());
  if (answer == nullptr || answer->status_code != 200) return std::nullopt;
  std::string text;
  std::array<char, 16384> some{};
  for (int size = 0; (size = mg_read(connection.get(), some.data(), some.size())) > 0;) {
    text.append(some.data(), static_cast<std::size_t>(size));
    if (text.size() > kMostBytes) return std::nullopt;
  }
  const bool whole =
      answer->content_length >= 0 && text.size() == static_cast<std::size_t>(answer->content_length);
  return whole ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace

void MetricsPeers::Set(std::uint32_t mine, std::vector<std::string> addresses) {
  const std::lock_guard lock(mutex_);
  mine_ = mine;
  addresses_ = std::move(addresses);
}

bool MetricsPeers::Knows(std::string_view authorization) const {
  if (!authorization.starts_with(kBearer)) return false;
  const auto said = DigestOf(authorization.substr(kBearer.size()));
  const auto mine = DigestOf(token_);
  return said.ok() && mine.ok() && SameDigest(*said, *mine);
}

Result<std::vector<std::string>> MetricsPeers::ReadAll(std::string own) const {
  const auto leave = [](std::atomic<int>* readings) { readings->fetch_sub(1); };
  const std::unique_ptr<std::atomic<int>, decltype(leave)> place(&readings_);
  if (readings_.fetch_add(1) >= kMostAtOnce) {
    return Unavailable("what all ranks count is being read " + std::to_string(kMostAtOnce) +
                       " times already, the most at once: ask again");
  }
  std::uint32_t mine = 0;
  std::vector<std::string> addresses;
  {
    const std::lock_guard lock(mutex_);
    mine = mine_;
    addresses = addresses_;
  }
  if (addresses.empty()) return Unavailable("the server is starting: the ranks do not know each other yet");
  std::vector<std::string> texts(addresses.size());
  texts.at(mine) = std::move(own);
  for (std::uint32_t rank = 0; rank < addresses.size(); ++rank) {
    if (rank == mine) continue;
    const auto address = ParseHostPort(addresses[rank]);
    auto text = address.ok() ? Fetch(*address, token_) : std::nullopt;
    if (!text) {
      return Unavailable("rank " + std::to_string(rank) + " does not say what it counts, at " +
                         (addresses[rank].empty() ? "no address" : addresses[rank]));
    }
    texts[rank] = std::move(*text);
  }
  return texts;
}

}  // namespace slotwise
