// Implements control calls. Each sends one small message and receives one.
#include "slotwise/client.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "client/cpp/client_impl.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/admin.pb.h"
#include "wire/stats_proto.h"
#include "wire/table_options_proto.h"

namespace slotwise {
namespace {

constexpr int kDefaultPort = 7070;
constexpr int kMost = 1024;  // the largest number of channels to a rank, and of threads

Status CheckOptions(const std::vector<std::string>& addresses, const ClientOptions& options) {
  if (addresses.empty()) return InvalidArgument("addresses is empty: name at least one rank");
  if (options.timeout.count() <= 0) {
    return InvalidArgument("timeout is " + std::to_string(options.timeout.count()) + " ms: must be above 0");
  }
  for (const auto& [name, value] :
       {std::pair("channels_per_rank", options.channels_per_rank), std::pair("threads", options.threads)}) {
    if (value < 1 || value > kMost) {
      return InvalidArgument(std::string(name) + " is " + std::to_string(value) + ": must be 1 to " +
                             std::to_string(kMost));
    }
  }
  if (options.door && options.transport != TransportKind::kBest && options.transport != *options.door)
    return InvalidArgument("transport and door are two names of one option: give transport alone");
  return {};
}

// Returns host:port, with the default port if there is none; INVALID_ARGUMENT if it is not that. An IPv6
// address with a port is in brackets: [::1]:7070.
Result<std::string> CheckAddress(const std::string& address) {
  const bool bracketed = address.starts_with('[') && address.find(']') != std::string::npos;
  const std::size_t end_of_host = bracketed ? address.find(']') + 1 : address.find(':');
  const bool is_bare_ipv6 = !address.starts_with('[') && std::ranges::count(address, ':') > 1 &&
                            address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string::npos;
  if (is_bare_ipv6) return CheckAddress("[" + address + "]");
  const std::string host = address.substr(0, end_of_host);
  const std::string rest = end_of_host >= address.size() ? "" : address.substr(end_of_host);
  int port = kDefaultPort;
  bool valid = !host.empty() && (rest.empty() || rest.front() == ':');
  if (valid && !rest.empty()) {
    const auto [read, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), port);
    valid = error == std::errc() && read == rest.data() + rest.size() && port >= 1 && port <= 65535;
  }
  if (!valid)
    return InvalidArgument("address is \"" + address + "\": must be host:port, with a port 1 to 65535");
  return host + ":" + std::to_string(port);
}

Quantiles QuantilesIn(const v1::Quantiles& wire) {
  return {.rows = wire.rows(),
          .p0 = wire.p0(),
          .p10 = wire.p10(),
          .p50 = wire.p50(),
          .p90 = wire.p90(),
          .p99 = wire.p99(),
          .p100 = wire.p100()};
}

// Returns the process in which gRPC was first used; in its forked children, gRPC's threads are missing, and
// calls would wait for ever.
pid_t ProcessOfGrpc() {
  static const pid_t process = getpid();
  return process;
}

}  // namespace

std::uint64_t TableDescription::rows() const {
  return std::accumulate(shards.begin(), shards.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ShardDescription& shard) { return sum + shard.rows; });
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Client::~Client() {
  // A forked child does not have the threads that it would wait for.
  if (impl_ && !impl_->IsOfThisProcess()) static_cast<void>(impl_.release());
}

void Client::Close() { impl_->Close(); }

Result<Client> Client::Connect(const std::vector<std::string>& addresses, const ClientOptions& given,
                               const std::stop_token& stop) {
  if (Status status = CheckOptions(addresses, given); !status.ok()) return status;
  ClientOptions options = given;
  if (given.door) options.transport = *given.door;
  if (ProcessOfGrpc() != getpid()) {
    return FailedPrecondition(
               "this process was forked from one that had connected, which gRPC does not survive: connect "
               "after the fork, or start processes by \"spawn\"")
        .Because(Reason::kClientClosed);
  }
  std::vector<std::string> seeds;
  for (const std::string& address : addresses) {
    const auto checked = CheckAddress(address);
    if (!checked.ok()) return checked.status();
    seeds.push_back(*checked);
  }
  const auto access = Access::Make(options.credentials);
  if (!access.ok()) return access.status();
  for (const std::string& seed : seeds) {
    if (Status status = (*access)->Check(seed); !status.ok()) return status;
  }
  ClientOptions one_channel = options;
  one_channel.channels_per_rank = one_channel.threads = 1;
  auto topology = Client(std::make_unique<Impl>(seeds, one_channel, *access)).Topology({.stop = stop});
  if (!topology.ok()) {
    const Status why = topology.status();
    return why.InWords("cannot connect: " + why.message());
  }
  if (topology->ranks.empty()) return Unavailable("cannot connect: " + seeds.front() + " names no ranks");
  for (const ServerRank& rank : topology->ranks) {
    if (Status status = (*access)->Check(rank.address); !status.ok()) return status;
  }
  return Client(std::make_unique<Impl>(seeds, options, *topology, *access));
}

Result<TableCreation> Client::CreateTable(const TableOptions& options, const CallOptions& call) {
  if (Status legal = Validate(options); !legal.ok())
    return legal;  // a message cannot represent every value of the C++ struct
  v1::CreateTableRequest request;
  *request.mutable_options() = ToProto(options);
  v1::CreateTableReply reply;
  if (Status status = impl_->Ask(call, "CreateTable", request, reply); !status.ok()) return status;
  const auto made = client::OptionsIn(reply.options());
  if (!made.ok()) return made.status();
  return TableCreation{.options = *made, .created = reply.created()};
}

Status Client::DropTable(std::string_view table, const CallOptions& call) {
  v1::DropTableRequest request;
  request.set_table(std::string(table));
  v1::DropTableReply reply;
  return impl_->Ask(call, "DropTable", request, reply);
}

Result<std::vector<TableOptions>> Client::ListTables(const CallOptions& call) {
  v1::ListTablesReply reply;
  if (Status status = impl_->Ask(call, "ListTables", v1::ListTablesRequest(), reply); !status.ok())
    return status;
  std::vector<TableOptions> tables;
  for (const auto& wire : reply.tables()) {
    const auto table = client::OptionsIn(wire);
    if (!table.ok()) return table.status();
    tables.push_back(*table);
  }
  return tables;
}

Result<TableDescription> Client::DescribeTable(std::string_view table, const CallOptions& call,
                                               bool with_ages) {
  v1::DescribeTableRequest request;
  request.set_table(std::string(table));
  request.set_ages(with_ages);
  v1::DescribeTableReply reply;
  if (Status status = impl_->Ask(call, "DescribeTable", request, reply); !status.ok()) return status;
  const auto options = client::DescribedOptions(reply, table);
  if (!options.ok()) return options.status();
  TableDescription description{
      .options = *options,
      .steps = reply.steps(),
      .learning_rate = reply.learning_rate(),
      .shards = {},
      .rounds = {.all_bags = reply.rounds().all_bags(), .owned_bags = reply.rounds().owned_bags()},
      .base_learning_rate = reply.base_learning_rate(),
      .generation = reply.lineage(),
      .evicted_rows = reply.evicted_rows(),
      .expired_rows = reply.expired_rows(),
      .refused_keys = reply.refused_keys(),
      .candidates = reply.candidates(),
      .counter_blocks = reply.counter_blocks(),
      .new_rows = reply.new_rows(),
      .evicted_ages = QuantilesIn(reply.evicted_ages()),
      .youngest_evicted_age = reply.youngest_evicted_age(),
      .ages = QuantilesIn(reply.ages()),
      .counts = QuantilesIn(reply.counts())};
  for (const auto& shard : reply.shards()) {
    description.shards.push_back({.rows = shard.rows(), .cells = shard.cells(), .bytes = shard.bytes()});
  }
  return description;
}

Result<TableDigest> Client::Digest(std::string_view table, const CallOptions& call) {
  v1::DigestRequest request;
  request.set_table(std::string(table));
  v1::DigestReply reply;
  if (Status status = impl_->Ask(call, "Digest", request, reply); !status.ok()) return status;
  return TableDigest{.digest = reply.digest(), .rows = reply.rows(), .steps = reply.steps()};
}

Status Client::SetLearningRate(std::string_view table, float learning_rate, const CallOptions& call) {
  v1::SetLearningRateRequest request;
  request.set_table(std::string(table));
  request.set_learning_rate(learning_rate);
  v1::SetLearningRateReply reply;
  return impl_->Ask(call, "SetLearningRate", request, reply);
}

Result<AlterationOutcome> Client::AlterTable(std::string_view table, const TableAlteration& alteration,
                                             const CallOptions& call) {
  v1::AlterTableReply reply;
  if (Status status = impl_->Ask(call, "AlterTable", ToProto(table, alteration), reply); !status.ok())
    return status;
  const auto options = client::OptionsIn(reply.options());
  if (!options.ok()) return options.status();
  return AlterationOutcome{.options = *options, .altered = reply.altered()};
}

Result<std::uint64_t> Client::EvictRows(std::string_view table, const RowsToEvict& rows,
                                        const CallOptions& call) {
  v1::EvictRowsRequest request;
  request.set_table(std::string(table));
  switch (rows.which) {
    case RowsToEvict::Which::kAllBut:
      request.set_keep_rows(rows.number);
      break;
    case RowsToEvict::Which::kBelow:
      request.set_below_score(rows.number);
      break;
    case RowsToEvict::Which::kExpired:
      request.set_expired(true);
      break;
  }
  v1::EvictRowsReply reply;
  if (Status status = impl_->Ask(call, "EvictRows", request, reply); !status.ok()) return status;
  return reply.rows();
}

Result<ServerTopology> Client::Topology(const CallOptions& call) {
  v1::GetTopologyReply reply;
  if (Status status = impl_->Ask(call, "GetTopology", v1::GetTopologyRequest(), reply); !status.ok())
    return status;
  return client::TopologyOf(reply);
}

Result<std::vector<RankStats>> Client::Stats(const CallOptions& call) {
  client::Call all = impl_->CallOf(call);
  const auto topology = Topology(call);
  if (!topology.ok()) return topology.status();
  std::vector<client::Request> requests;
  std::vector<RankStats> stats(topology->ranks.size());
  for (std::size_t rank = 0; rank < stats.size(); ++rank) {
    const auto read = [&stats, rank](const grpc::ByteBuffer& bytes) {
      v1::GetStatsReply reply;
      Status status = client::Deserialize(bytes, reply);
      if (status.ok()) stats[rank] = FromProto(reply);
      return status;
    };
    client::Request& request = requests.emplace_back(client::ToAsk("GetStats", v1::GetStatsRequest(), read));
    request.rank = rank;
    request.once = true;
  }
  if (Status status = impl_->runs().SendAndWait(all, std::move(requests)); !status.ok()) return status;
  return stats;
}

Result<SessionDescription> Client::DescribeSession(std::uint64_t session, std::uint64_t epoch,
                                                   const CallOptions& call) {
  v1::DescribeSessionRequest request;
  request.set_session(session);
  request.set_epoch(epoch);
  v1::DescribeSessionReply reply;
  if (Status status = impl_->Ask(call, "DescribeSession", request, reply); !status.ok()) return status;
  SessionDescription description{.known = reply.known(),
                                 .last_step = reply.last_step(),
                                 .epoch = reply.epoch(),
                                 .may_be_forgotten = reply.may_be_forgotten(),
                                 .tables = {},
                                 .instance = reply.incarnation()};
  for (const auto& table : reply.tables())
    description.tables.push_back({.table = table.table(), .last_step = table.last_step()});
  return description;
}

Session& Client::session() { return impl_->session(); }

}  // namespace slotwise
