// Finds NaN and infinity in an array at the speed of memory.
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_FINITE_H_
#define SLOTWISE_SERVER_RPC_FINITE_H_

#include <cstddef>
#include <optional>
#include <span>

namespace slotwise {

// Returns the index of the first value that is NaN or infinite, if there is one.
std::optional<std::size_t> FirstNonFinite(std::span<const float> values);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_FINITE_H_
