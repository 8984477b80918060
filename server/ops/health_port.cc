#include "server/ops/health_port.h"

#include <utility>

namespace slotwise {

Result<std::unique_ptr<HttpPort>> OpenHealthPort(const HostPort& address, std::function<bool()> serves) {
  return HttpPort::Open(address, "health_listen",
                        {{"/livez", [](const HttpRequest&) { return HttpAnswer{.body = "ALIVE\n"}; }},
                         {"/readyz", [serves = std::move(serves)](const HttpRequest&) {
                            return serves() ? HttpAnswer{.body = "SERVING\n"}
                                            : HttpAnswer{.status = "503 Service Unavailable",
                                                         .body = "NOT_SERVING\n"};
                          }}});
}

}  // namespace slotwise
