// DataLink is a client's connection of the data transport (proto/slotwise/v1/data.proto) to one address. The
// link connects when it is first used, and again after the connection was lost.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_DATA_LINK_H_
#define SLOTWISE_CLIENT_CPP_DATA_LINK_H_

#include <memory>

#include "client/cpp/data_threads.h"
#include "client/cpp/rank_address.h"
#include "client/cpp/transport.h"
#include "wire/access.h"

namespace slotwise::client {

class DataLink final : public Transport {
 public:
  // `threads` outlives the link. `access` has the token that calls send if the server asks for one; it may be
  // null if the address has no only_user.
  DataLink(DataThreads& threads, RankAddress address, std::shared_ptr<Access> access = nullptr);
  // Ends the connection. REQUIRES: all calls are over.
  ~DataLink() override;
  DataLink(const DataLink&) = delete;
  DataLink& operator=(const DataLink&) = delete;

  // REQUIRES: `exchange` is a DataExchange.
  Cancel Send(std::shared_ptr<Exchange> exchange, const Sending& how, Done done) override;
  bool connected() const override;
  void Connect() override;
  // Ends the connection soon. REQUIRES: all calls are over, and no new ones come.
  void Close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DATA_LINK_H_
