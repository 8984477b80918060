// Quotes text from callers, for messages and log lines. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_INTAKE_QUOTED_H_
#define SLOTWISE_SERVER_INTAKE_QUOTED_H_

#include <string>
#include <string_view>

namespace slotwise {

// Returns `text`, a name that a caller sent, in quotes: cut at 80 bytes, with bytes that are not printable
// ASCII as \x..
std::string Quoted(std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_QUOTED_H_
