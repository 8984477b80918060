// Serves control calls: tables, the server's topology, digests, checkpoints.
// Thread-safety: safe; gRPC calls it from many threads.
#ifndef SLOTWISE_SERVER_RPC_ADMIN_SERVICE_H_
#define SLOTWISE_SERVER_RPC_ADMIN_SERVICE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "server/data/data_server.h"
#include "server/engine/engine.h"
#include "server/rpc/checkpoint_service.h"
#include "server/rpc/small_call.h"
#include "server/rpc/topology.h"
#include "server/rpc/watched_gate.h"
#include "slotwise/v1/admin.grpc.pb.h"

namespace slotwise {

class AdminService final : public SmallMethods<v1::Admin::Service> {
 public:
  // `engine` and `gate` outlive the service. REQUIRES: the engine's recovery is over.
  AdminService(Engine& engine, WatchedGate& gate, const RequestLimits& limits,
               std::chrono::milliseconds default_deadline);

  // Sets the function for GetStats's numbers of the data transport. Called before the gate opens.
  void SetDataLoad(std::function<DataLoad()> load) { data_load_ = std::move(load); }

  // Sets the answer of GetTopology. A rank listens before it knows its peers, so SetTopology is called later,
  // but before the gate opens.
  void SetTopology(Topology topology);

  // Returns the rank's counters and its present work. Any thread.
  RankStats Stats() const;

  // Ends long operations on checkpoints. Later calls about checkpoints are refused.
  void Stop() { checkpoints_.Stop(); }

 private:
  void HandleCreateTable(const SmallCall<v1::CreateTableRequest, v1::CreateTableReply>& call);
  void HandleDropTable(const SmallCall<v1::DropTableRequest, v1::DropTableReply>& call);
  void HandleListTables(const SmallCall<v1::ListTablesRequest, v1::ListTablesReply>& call);
  void HandleDescribeTable(const SmallCall<v1::DescribeTableRequest, v1::DescribeTableReply>& call);
  void HandleEvictRows(const SmallCall<v1::EvictRowsRequest, v1::EvictRowsReply>& call);
  void HandleListEvicted(const SmallCall<v1::ListEvictedRequest, v1::ListEvictedReply>& call);
  void HandleAlterTable(const SmallCall<v1::AlterTableRequest, v1::AlterTableReply>& call);
  void HandleSetLearningRate(const SmallCall<v1::SetLearningRateRequest, v1::SetLearningRateReply>& call);
  void HandleGetTopology(const SmallCall<v1::GetTopologyRequest, v1::GetTopologyReply>& call);
  void HandleGetStats(const SmallCall<v1::GetStatsRequest, v1::GetStatsReply>& call);
  void HandleDigest(const SmallCall<v1::DigestRequest, v1::DigestReply>& call);
  void HandleDescribeSession(const SmallCall<v1::DescribeSessionRequest, v1::DescribeSessionReply>& call);
  // These are in admin_checkpoints.cc.
  void HandleSaveCheckpoint(const SmallCall<v1::SaveCheckpointRequest, v1::SaveCheckpointReply>& call);
  void HandleListCheckpoints(const SmallCall<v1::ListCheckpointsRequest, v1::ListCheckpointsReply>& call);
  void HandleDescribeCheckpoint(
      const SmallCall<v1::DescribeCheckpointRequest, v1::DescribeCheckpointReply>& call);
  void HandleVerifyCheckpoint(const SmallCall<v1::VerifyCheckpointRequest, v1::VerifyCheckpointReply>& call);
  void HandleLoadCheckpoint(const SmallCall<v1::LoadCheckpointRequest, v1::LoadCheckpointReply>& call);
  void HandlePinCheckpoint(const SmallCall<v1::PinCheckpointRequest, v1::PinCheckpointReply>& call);
  void HandleReleaseCheckpoint(
      const SmallCall<v1::ReleaseCheckpointRequest, v1::ReleaseCheckpointReply>& call);
  void HandleCompactCheckpoint(
      const SmallCall<v1::CompactCheckpointRequest, v1::CompactCheckpointReply>& call);

  Engine& engine_;
  const WatchedGate& gate_;
  const RequestLimits limits_;

  std::function<DataLoad()> data_load_ = [] { return DataLoad{}; };

  mutable std::mutex mutex_;
  Topology topology_;  // guarded by mutex_
  CheckpointService checkpoints_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ADMIN_SERVICE_H_
