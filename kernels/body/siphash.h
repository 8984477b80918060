// SipHash of one 64-bit word is the keyed hash that gives a key its place in a hash table.
//
// SipHash-c-d (Aumasson and Bernstein 2012) mixes each word of the message into four words of state in c
// rounds, and ends with d rounds more. Without the hash's key, its values cannot be told from random ones. A
// message of eight bytes is the word itself and a second word that says its length. The part of the first
// round before the message enters the state depends on the key alone, so the constructor does that part once.
#ifndef SLOTWISE_KERNELS_BODY_SIPHASH_H_
#define SLOTWISE_KERNELS_BODY_SIPHASH_H_

#include <cstdint>

#include "kernels/body/portable.h"

namespace slotwise::body {

// REQUIRES: 0 < by < 64.
SLOTWISE_HD constexpr std::uint64_t RotateLeft(std::uint64_t x, int by) { return x << by | x >> (64 - by); }

// The state of a hash. A round is its two halves, one after the other.
struct SipState {
  std::uint64_t v0, v1, v2, v3;

  // Does the half of a round that precedes all use of v3, into which a word of the message was mixed.
  SLOTWISE_HD constexpr void BeginRound() {
    v0 += v1;
    v1 = RotateLeft(v1, 13) ^ v0;
    v0 = RotateLeft(v0, 32);
  }
  SLOTWISE_HD constexpr void EndRound() {
    v2 += v3;
    v3 = RotateLeft(v3, 16) ^ v2;
    v0 += v3;
    v3 = RotateLeft(v3, 21) ^ v0;
    v2 += v1;
    v1 = RotateLeft(v1, 17) ^ v2;
    v2 = RotateLeft(v2, 32);
  }
  SLOTWISE_HD constexpr void Rounds(int count) {
    for (int round = 0; round < count; ++round) {
      BeginRound();
      EndRound();
    }
  }
};

// Hashes words in kCompression and kFinalization rounds. Trivially copyable, for launches.
template <int kCompression, int kFinalization>
class SipHashOfWord {
 public:
  static_assert(kCompression >= 1 && kFinalization >= 1);

  // The key's low and high eight bytes, each in little-endian order.
  constexpr SipHashOfWord(std::uint64_t low, std::uint64_t high)
      : begun_{low ^ 0x736f6d6570736575ULL, high ^ 0x646f72616e646f6dULL, low ^ 0x6c7967656e657261ULL,
               high ^ 0x7465646279746573ULL} {
    begun_.BeginRound();
  }

  SLOTWISE_HD constexpr std::uint64_t operator()(std::uint64_t word) const {
    constexpr std::uint64_t kLength = std::uint64_t{8} << 56;  // eight bytes, and none in the last word
    SipState state = begun_;
    state.v3 ^= word;
    state.EndRound();
    state.Rounds(kCompression - 1);
    state.v0 ^= word;
    state.v3 ^= kLength;
    state.Rounds(kCompression);
    state.v0 ^= kLength;
    state.v2 ^= 0xff;
    state.Rounds(kFinalization);
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
  }

 private:
  SipState begun_;  // with the half of the first round that depends on the key alone
};

// Hash tables use one round a word and three at the end, as dictionaries of several languages do.
using PlaceHash = SipHashOfWord<1, 3>;

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_SIPHASH_H_
