#include "client/cpp/client_impl.h"

#include <algorithm>
#include <utility>

#include "client/cpp/local_socket.h"
#include "client/cpp/messages.h"
#include "slotwise/sizing.h"
#include "slotwise/v1/admin.pb.h"
#include "wire/data_version.h"
#include "wire/table_options_proto.h"
#include "wire/trace_id.h"

namespace slotwise {

using client::Call;

namespace {

constexpr std::uint64_t kRowsMessage = 1 << 20;
constexpr std::uint64_t kHeaderBytes = 1024;  // for the fields of a message of rows that are not arrays

std::vector<client::RankAddress> SeedsOf(const std::vector<std::string>& seeds) {
  std::vector<client::RankAddress> addresses;
  for (const std::string& seed : seeds) addresses.push_back({.address = seed, .gives_reasons = true});
  return addresses;
}

// Returns whether lookups and pushes go to the rank's port by the data transport. That port takes no token
// and encrypts nothing, so not if the client wants TLS, whatever the server offers.
bool SpeaksDataAtPort(const ClientOptions& options, const ServerTopology& topology, const Access& access) {
  return options.transport != TransportKind::kGrpc && topology.data_version == kDataVersion && !access.tls();
}

// Returns whether lookups and pushes go to the rank's Unix socket, on a server that asks for a token. A
// client without a token is known by its certificate, which only gRPC shows.
bool SpeaksDataLocally(const ClientOptions& options, const ServerTopology& topology, const ServerRank& rank,
                       const Access& access) {
  const bool wanted = options.transport != TransportKind::kGrpc && options.transport != TransportKind::kTcp;
  return wanted && topology.data_version == 0 && access.has_token() && rank.local_user &&
         client::ServesLocally(rank.local, *rank.local_user);
}

std::vector<client::RankAddress> AddressesIn(const ClientOptions& options, const ServerTopology& topology,
                                             const Access& access) {
  std::vector<client::RankAddress> addresses;
  for (const ServerRank& rank : topology.ranks) {
    // A rank whose device has its own memory shares none of the host's; one that names no device shares it.
    const bool shares_host = rank.gpu.empty() || rank.gpu == client::kHostMemory;
    const bool by_gpu = options.transport == TransportKind::kGpu ||
                        (options.transport == TransportKind::kBest && rank.gpu != client::kHostMemory);
    const bool at_port = SpeaksDataAtPort(options, topology, access);
    const bool locally = !at_port && SpeaksDataLocally(options, topology, rank, access);
    client::RankAddress& made = addresses.emplace_back();
    made.address = rank.address;
    if ((at_port && options.transport != TransportKind::kTcp) || locally) made.local = rank.local;
    made.data = at_port || locally || options.transport == TransportKind::kShm;
    if (locally) made.only_user = rank.local_user;
    made.shares_host = shares_host;
    made.only_local = options.transport == TransportKind::kShm;
    made.gpu = by_gpu ? rank.gpu : "";
    made.only_gpu = options.transport == TransportKind::kGpu;
    made.gives_reasons = topology.gives_reasons;
  }
  return addresses;
}

}  // namespace

Client::Impl::Impl(const std::vector<std::string>& seeds, const ClientOptions& options,
                   std::shared_ptr<Access> access)
    : options_(options),
      session_({.id = Session::NewId()}),
      channels_(std::move(access), SeedsOf(seeds), options.channels_per_rank, options.threads, options.log) {}

Client::Impl::Impl(const std::vector<std::string>& seeds, const ClientOptions& options,
                   const ServerTopology& topology, const std::shared_ptr<Access>& access)
    : options_(options),
      seeds_(SeedsOf(seeds)),
      session_({.id = Session::NewId(), .epoch = topology.epoch}),
      instance_(topology.instance),
      limits_(topology),
      channels_(access, AddressesIn(options, topology, *access), options.channels_per_rank, options.threads,
                options.log, [this] { LookForNewStart(); }) {
  channels_.TakeAtMost(limits_.message);
}

void Client::Impl::Meet(const ServerTopology& topology) {
  if (topology.ranks.empty() || topology.instance == 0) return;
  for (const ServerRank& rank : topology.ranks) {
    if (Status status = channels_.access().Check(rank.address); !status.ok())
      return channels_.Log(status.message());
  }
  bool is_first = false;
  {
    // A thread that sees the new instance may rely on the channels to its ranks.
    const std::lock_guard lock(meeting_);
    if (instance_ == topology.instance) return;
    channels_.MoveTo(AddressesIn(options_, topology, channels_.access()));
    is_first = instance_ == 0;
    {
      const std::lock_guard guarded(mutex_);
      limits_ = client::ServerLimits(topology);
      channels_.TakeAtMost(limits_.message);
    }
    instance_ = topology.instance;
  }
  if (is_first) return;
  channels_.Log("the server was started again, with " + std::to_string(topology.ranks.size()) + " rank(s)");
}

void Client::Impl::Close() {
  if (!IsOfThisProcess()) return;
  runs_.Close();
  channels_.now()->Close();
}

Call Client::Impl::CallOf(const CallOptions& options) const {
  // A longer timeout could not be added to the clock.
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 10);
  const auto timeout = std::min(kLongest, options.timeout.value_or(options_.timeout));
  return {.timeout = timeout,
          .deadline = std::chrono::steady_clock::now() + timeout,
          .stop = options.stop,
          .retry_for = timeout,
          .data_type = options.data_type.value_or(options_.data_type),
          .traceparent = TraceIdOf(options.traceparent).empty() ? std::string() : options.traceparent,
          .looked_up = options.looked_up,
          .learning_rates = options.learning_rates};
}

void Client::Impl::Remember(const TableOptions& options) {
  const std::lock_guard lock(mutex_);
  tables_.insert_or_assign(options.name.str(), options);
}

std::optional<TableOptions> Client::Impl::Known(std::string_view table) const {
  if (!IsOfThisProcess()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto known = tables_.find(table);
  return known == tables_.end() ? std::nullopt : std::optional(known->second);
}

void Client::Impl::Forget(std::string_view table) {
  if (!IsOfThisProcess()) return;
  const std::lock_guard lock(mutex_);
  if (const auto known = tables_.find(table); known != tables_.end()) tables_.erase(known);
}

void Client::Impl::ForgetOptions() {
  const std::lock_guard lock(mutex_);
  tables_.clear();
}

void Client::Impl::ForgetTables() {
  states_.ForgetAll();
  ForgetOptions();
}

void Client::Impl::ForgetAllOf(std::string_view table) {
  Forget(table);
  states_.Forget(table);
}

std::size_t Client::Impl::RowsAMessage(std::size_t row_bytes) const {
  const client::ServerLimits limits = this->limits();
  const std::uint64_t room = limits.message - std::min(limits.message, kHeaderBytes);
  const std::uint64_t fit = std::min(room, kRowsMessage) / row_bytes;
  // Each row is a bag, which has an offset, and there is one more.
  const std::uint64_t gathered = (limits.round - sizeof(std::uint32_t)) / (row_bytes + sizeof(std::uint32_t));
  return std::max<std::uint64_t>(1, std::min({fit, gathered, limits.round / sizing::kBytesOfKey}));
}

}  // namespace slotwise
