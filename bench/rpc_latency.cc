#include "bench/rpc_latency.h"

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <optional>

#include "bench/common_options.h"
#include "bench/rpc_traffic.h"
#include "bench/timing.h"
#include "client/cpp/data_link.h"

namespace slotwise::bench {
namespace {

// A call for several lookups that contains none.
class Nothing final : public client::DataExchange {
 public:
  void Write(v1::DataCall& call, Body& /*body*/) override { call.set_many(true); }
  Result<Room> MakeRoom(const v1::DataReply& /*reply*/) override { return Room{}; }
  std::uint64_t ValueBytes() const override { return 0; }
  Status Read(const v1::DataReply& /*reply*/) override { return {}; }
};

// Makes calls over a connection of the data transport, one at a time.
class EmptyCalls {
 public:
  explicit EmptyCalls(const client::RankAddress& address) : link_(threads_, address) {}

  void Call() {
    std::promise<bool> ok;
    link_.Send(nothing_, {.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30)},
               [&ok](const Status& answer, const client::Transport::Read& read) {
                 ok.set_value(answer.ok() && read().ok());
               });
    Must(ok.get_future().get(), "an empty call is refused");
  }

 private:
  client::DataThreads threads_{1};
  client::DataLink link_;
  const std::shared_ptr<Nothing> nothing_ = std::make_shared<Nothing>();
};

}  // namespace

RpcLatency MeasureLatency(Client& client, TransportKind transport, const std::string& table,
                          std::uint32_t hot, int calls) {
  const ServerTopology topology = Must(client.Topology(), "no topology");
  const ServerRank& rank = topology.ranks.front();
  std::optional<EmptyCalls> data;
  if (transport != TransportKind::kGrpc) {
    data.emplace(client::RankAddress{.address = rank.address,
                                     .local = transport == TransportKind::kTcp ? "" : rank.local,
                                     .only_local = transport == TransportKind::kShm});
  }
  const TableOptions options = Must(client.DescribeTable(table), "no table").options;
  std::vector<Key> keys(hot);
  std::vector<std::uint32_t> offsets;
  if (hot > 1) offsets = {0, hot};
  std::vector<float> out(options.dim);
  RpcLatency latency;
  for (int i = -calls / 10; i < calls; ++i) {
    const double empty = SecondsOf([&] { data ? data->Call() : Must(client.Topology().status(), "a call"); });
    for (std::uint32_t k = 0; k < hot; ++k)
      keys[k] = RpcTraffic::KeyOf(static_cast<std::uint32_t>(i + 1000) + k);
    const double lookup = SecondsOf([&] {
      Must(client.Lookup(table, {keys, offsets}, LookupMode::kEval, out), "a lookup is refused");
    });
    if (i < 0) continue;  // the first calls make the connections
    latency.empty.push_back(empty);
    latency.lookup.push_back(lookup);
  }
  return latency;
}

}  // namespace slotwise::bench
