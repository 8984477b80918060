// HttpPort answers GET requests at an address: at each of some paths by a function, elsewhere by 404.
// Thread-safety: the thread that owns it; functions are called from threads of its own.
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
  std::string_view authorization;  // the field's text; empty without one
};

struct HttpAnswer {
  const char* status = "200 OK";
  std::string body = {};
  const char* type = "text/plain; charset=utf-8";
  std::string fields = {};  // more of the head, each with CR LF
};

class HttpPort {
 public:
  using Function = std::function<HttpAnswer(const HttpRequest&)>;
  // By path, such as "/metrics". None of them waits.
  using Functions = std::map<std::string, Function>;

  // Listens. A function is called for each request, from any thread, by 16 at a time at most.
  // FAILED_PRECONDITION, in one sentence that names `field` of the configuration: the address cannot be had.
  static Result<std::unique_ptr<HttpPort>> Open(const HostPort& address, std::string_view field,
                                                Functions functions);
  // Waits for requests that are being answered.
  ~HttpPort();
  HttpPort(const HttpPort&) = delete;
  HttpPort& operator=(const HttpPort&) = delete;

  // Returns the port that it listens at.
  std::uint16_t port() const;

 private:
  class Impl;
  explicit HttpPort(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_HTTP_PORT_H_
