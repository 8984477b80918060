#include "server/access/local_user.h"

#include <pwd.h>

#include <cerrno>
#include <charconv>
#include <limits>
#include <vector>

namespace slotwise {
namespace {

// Returns the number of the user with this name; kUnknownUser: there is none.
std::uint32_t NumberOfName(const std::string& name) {
  constexpr std::size_t kMost = 1 << 20;  // bytes of the system's answer
  for (std::vector<char> room(1024); room.size() <= kMost; room.resize(4 * room.size())) {
    passwd entry{};
    passwd* found = nullptr;
    const int error = getpwnam_r(name.c_str(), &entry, room.data(), room.size(), &found);
    if (error == ERANGE) continue;
    return error == 0 && found != nullptr ? found->pw_uid : kUnknownUser;
  }
  return kUnknownUser;
}

}  // namespace

Result<std::uint32_t> UserNumberOf(const std::string& text) {
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, number);
  const bool is_number = !text.empty() && error == std::errc() && read == end;
  if (!is_number) number = NumberOfName(text);
  if (number == kUnknownUser || number == std::numeric_limits<std::uint32_t>::max()) {
    return InvalidArgument("\"" + text + "\" is no user of this host");
  }
  return number;
}

}  // namespace slotwise
