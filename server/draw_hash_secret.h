// Draws the secret of this process's hash tables from the kernel's random numbers.
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_DRAW_HASH_SECRET_H_
#define SLOTWISE_SERVER_DRAW_HASH_SECRET_H_

#include <sys/random.h>
#include <sys/types.h>

#include <cstddef>

#include "kernels/hash_secret.h"
#include "slotwise/status.h"

namespace slotwise {

// Returns a new secret. FAILED_PRECONDITION, in one sentence for the operator, if the system gives no random
// numbers. `source` is getrandom(2), or what a test puts in its place.
Result<HashSecret> DrawHashSecret(ssize_t (*source)(void* bytes, std::size_t size,
                                                    unsigned flags) = getrandom);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DRAW_HASH_SECRET_H_
