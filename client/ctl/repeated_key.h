// Finds a key that occurs twice in a file of keys, for which no row could be chosen.
// Thread-safety: a free function.
#ifndef SLOTWISE_CLIENT_CTL_REPEATED_KEY_H_
#define SLOTWISE_CLIENT_CTL_REPEATED_KEY_H_

#include <cstddef>
#include <optional>
#include <string>

#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise::ctl {

// Returns a key that occurs twice in the keys.npy at `path`, if there is one. Reads the file several times
// rather than hold many more than `at_once` keys in memory. Errors as of NpyReader.
Result<std::optional<Key>> FindRepeatedKey(const std::string& path, std::size_t at_once = 1 << 25);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_REPEATED_KEY_H_
