// BatchCall: does what lookups and pushes share. It gets tables' options, checks and cuts the batches, sends
// them, and forgets the options after an error.
// Thread-safety: any thread; callbacks come on the client's threads, or before the call returns.
#ifndef SLOTWISE_CLIENT_CPP_BATCH_CALL_H_
#define SLOTWISE_CLIENT_CPP_BATCH_CALL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "client/cpp/batches.h"
#include "client/cpp/client_impl.h"

namespace slotwise {

class Client::BatchCall {
 public:
  // Each calls `done` when all parts are answered. `impl` outlives the call.
  static void Lookup(Impl& impl, const client::Call& call, client::Batches lookups, LookupMode mode,
                     Done done);
  // `named`: nothing for the next step of the client's own session.
  static void Push(Impl& impl, const client::Call& call, client::Batches pushes,
                   const std::optional<Step>& named, PushDone done);

 private:
  // Called with the batches checked. Cuts them, and returns the requests.
  using MakeRequests = std::function<Result<std::vector<client::Request>>()>;

  static void Start(Impl& impl, const client::Call& call, const std::shared_ptr<client::Batches>& batches,
                    MakeRequests make_requests, Done done);
  // Asks what became of the client's other tables, so that a restart or a load is heard of once. What cannot
  // be asked is heard of by a later call.
  static void AddOtherLosses(Impl& impl, const client::Call& call, const Status& loss, const Done& done);
  // `parts`: that a step has; 0 if it does not matter.
  static Status CutFor(Impl& impl, const client::Call& call, client::Batches& batches, std::uint32_t parts);
  static void PushAs(Impl& impl, const client::Call& call, const std::shared_ptr<client::Batches>& batches,
                     const Step& step, const std::shared_ptr<std::atomic<bool>>& sent_again, PushDone done);
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_CPP_BATCH_CALL_H_
