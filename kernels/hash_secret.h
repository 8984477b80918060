// A HashSecret is the 128 bits under which a rank hashes keys to cells of its hash tables.
//
// An attacker who knew the secret could choose keys that all want one cell, so that a search for one of them
// passes the cells of all the others. A server draws its secret when it starts and tells it to no other
// process: the type has no default that could be taken by accident, and is not trivially copyable, so that
// the functions that send values to other ranks do not compile with it. Ranks may have different secrets,
// because no answer depends on the cells of keys.
// Thread-safety: a plain value.
#ifndef SLOTWISE_KERNELS_HASH_SECRET_H_
#define SLOTWISE_KERNELS_HASH_SECRET_H_

#include <cstdint>
#include <type_traits>

namespace slotwise {

class HashSecret {
 public:
  HashSecret() = delete;
  constexpr HashSecret(std::uint64_t low, std::uint64_t high) : low_(low), high_(high) {}
  // NOLINTNEXTLINE(modernize-use-equals-default): a default would make the type trivially copyable.
  constexpr HashSecret(const HashSecret& other) : low_(other.low_), high_(other.high_) {}
  HashSecret& operator=(const HashSecret&) = delete;

  constexpr std::uint64_t low() const { return low_; }
  constexpr std::uint64_t high() const { return high_; }

 private:
  std::uint64_t low_;
  std::uint64_t high_;
};

static_assert(!std::is_default_constructible_v<HashSecret>, "a secret has to be chosen");
static_assert(!std::is_trivially_copyable_v<HashSecret>, "a secret is not sent as plain bytes");

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_HASH_SECRET_H_
