// HttpPort answers GET requests at an address: some paths by a function, all others by 404.
// Thread-safety: for the thread that owns it; functions are called from its own threads.
#ifndef SLOTWISE_SERVER_OPS_HTTP_PORT_H_
#define SLOTWISE_SERVER_OPS_HTTP_PORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "server/ops/host_port.h"
#include "slotwise/status.h"

namespace slotwise {

struct HttpRequest {
  std::string_view authorization;  // the field's text; empty: there is no such field
};

struct HttpAnswer {
  const char* status = "200 OK";
  std::string body = {};
  const char* type = "text/plain; charset=utf-8";
  std::string fields = {};  // more header fields, each with CR LF
};

class HttpPort {
 public:
  using Function = std::function<HttpAnswer(const HttpRequest&)>;
  // By path, such as "/metrics". The functions must not wait.
  using Functions = std::map<std::string, Function>;

  // Listens. Calls a path's function for each request, from any thread, for at most 16 requests at a time.
  // FAILED_PRECONDITION, in one sentence with the configuration's `field`: it cannot listen at the address.
  static Result<std::unique_ptr<HttpPort>> Open(const HostPort& address, std::string_view field,
                                                Functions functions);
  // Waits for requests that are being answered.
  ~HttpPort();
  HttpPort(const HttpPort&) = delete;
  HttpPort& operator=(const HttpPort&) = delete;

  // Returns the port where it listens.
  std::uint16_t port() const;

 private:
  class Impl;
  explicit HttpPort(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_HTTP_PORT_H_
