// This header tells which addresses belong to this host alone.
// Thread-safety: a free function.
#ifndef SLOTWISE_LOOPBACK_H_
#define SLOTWISE_LOOPBACK_H_

#include <string_view>

namespace slotwise {

// Returns true if no other machine reaches a server that listens at `host`, and a connection to `host`
// reaches this host: the name "localhost", an IPv4 address of 127.0.0.0/8 with all four numbers, and [::1].
// Any other name or spelling returns false.
bool IsLoopback(std::string_view host);

}  // namespace slotwise

#endif  // SLOTWISE_LOOPBACK_H_
