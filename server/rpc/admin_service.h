// Serves the control path: tables, the server's topology, digests, checkpoints. Parses requests itself,
// because gRPC would answer UNIMPLEMENTED, without a word, to one that is not a valid message.
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
#include "server/rpc/checkpoint_desk.h"
#include "server/rpc/topology.h"
#include "server/rpc/watched_gate.h"
#include "slotwise/v1/admin.grpc.pb.h"

namespace slotwise {

class AdminService final
    : public v1::Admin::WithRawCallbackMethod_CreateTable<v1::Admin::WithRawCallbackMethod_DropTable<
          v1::Admin::WithRawCallbackMethod_ListTables<v1::Admin::WithRawCallbackMethod_DescribeTable<
              v1::Admin::WithRawCallbackMethod_SetLearningRate<v1::Admin::WithRawCallbackMethod_GetTopology<
                  v1::Admin::WithRawCallbackMethod_Digest<v1::Admin::WithRawCallbackMethod_SaveCheckpoint<
                      v1::Admin::WithRawCallbackMethod_ListCheckpoints<
                          v1::Admin::WithRawCallbackMethod_DescribeCheckpoint<
                              v1::Admin::WithRawCallbackMethod_VerifyCheckpoint<
                                  v1::Admin::WithRawCallbackMethod_LoadCheckpoint<
                                      v1::Admin::WithRawCallbackMethod_PinCheckpoint<
                                          v1::Admin::WithRawCallbackMethod_ReleaseCheckpoint<
                                              v1::Admin::WithRawCallbackMethod_CompactCheckpoint<
                                                  v1::Admin::WithRawCallbackMethod_DescribeSession<
                                                      v1::Admin::WithRawCallbackMethod_GetStats<
                                                          v1::Admin::Service>>>>>>>>>>>>>>>>> {
 public:
  // `engine` and `gate` outlive the service. REQUIRES: the engine has recovered, if it is to.
  AdminService(Engine& engine, WatchedGate& gate, const RequestLimits& limits,
               std::chrono::milliseconds default_deadline);

  // Sets what GetStats says of the data transport. Called before the gate opens.
  void SetDataLoad(std::function<DataLoad()> load) { data_load_ = std::move(load); }

  // Sets what GetTopology answers. A rank listens before it knows its peers, so SetTopology is called later,
  // but before the gate opens.
  void SetTopology(Topology topology);

  // Returns what the rank has counted, and what it is at. Any thread.
  RankStats Stats() const;

  // Ends what takes long. Calls about checkpoints are refused from now on.
  void Stop() { checkpoints_.Stop(); }

  grpc::ServerUnaryReactor* CreateTable(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* DropTable(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* ListTables(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* DescribeTable(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* SetLearningRate(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Digest(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* DescribeSession(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* reply) override;
  // admin_checkpoints.cc
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* DescribeCheckpoint(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* VerifyCheckpoint(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* LoadCheckpoint(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* PinCheckpoint(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* ReleaseCheckpoint(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* CompactCheckpoint(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* reply) override;

 private:
  // Returns NOT_FOUND, naming the table, if there is no such table.

  Engine& engine_;
  WatchedGate& gate_;
  const RequestLimits limits_;
  const std::chrono::milliseconds default_deadline_;

  std::function<DataLoad()> data_load_ = [] { return DataLoad{}; };

  mutable std::mutex mutex_;
  Topology topology_;  // guarded by mutex_
  CheckpointDesk checkpoints_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ADMIN_SERVICE_H_
