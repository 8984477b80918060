// Looks up users of this host by name or number.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_ACCESS_LOCAL_USER_H_
#define SLOTWISE_SERVER_ACCESS_LOCAL_USER_H_

#include <cstdint>
#include <string>

#include "slotwise/status.h"

namespace slotwise {

// Linux gives this number to users that a namespace does not know; it may be any user.
inline constexpr std::uint32_t kUnknownUser = 65534;

// Returns the number of the user that `text` names by name or number. INVALID_ARGUMENT, in one sentence:
// there is no such user, or it is kUnknownUser.
Result<std::uint32_t> UserNumberOf(const std::string& text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_LOCAL_USER_H_
