// Access reads a client's Credentials and gives them to gRPC.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_WIRE_ACCESS_H_
#define SLOTWISE_WIRE_ACCESS_H_

#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "slotwise/credentials.h"
#include "slotwise/status.h"

namespace slotwise {

class Access {
 public:
  // INVALID_ARGUMENT, with the name of the file and never its contents, if a file cannot be read, has the
  // wrong contents, or needs another file that is missing.
  static Result<std::shared_ptr<Access>> Make(const Credentials& credentials);

  // Returns the credentials of every channel.
  const std::shared_ptr<grpc::ChannelCredentials>& channel() const { return channel_; }
  void SetArguments(grpc::ChannelArguments& arguments) const;

  // Adds the token to a call, before it starts.
  void Add(grpc::ClientContext& context);
  // Returns the token itself; empty: there is none.
  std::string BareToken();
  bool has_token() const { return !credentials_.token_file.empty(); }
  bool tls() const { return credentials_.tls(); }

  // INVALID_ARGUMENT if a token would travel unencrypted to another host, and `insecure` does not allow that.
  // `address` is host:port.
  Status Check(const std::string& address) const;

 private:
  explicit Access(const Credentials& credentials) : credentials_(credentials) {}
  // Reads the token again if its file has changed. REQUIRES: mutex_ is held.
  void LookAgain();

  const Credentials credentials_;
  std::shared_ptr<grpc::ChannelCredentials> channel_;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::string token_;  // empty: there is none
  std::string stamp_;  // which file it was, and when it was written
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_ACCESS_H_
