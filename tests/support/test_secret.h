// The secret of tests' hash tables, which is fixed so that a test does the same in every run.
// Thread-safety: a constant.
#ifndef SLOTWISE_TESTS_SUPPORT_TEST_SECRET_H_
#define SLOTWISE_TESTS_SUPPORT_TEST_SECRET_H_

#include "kernels/hash_secret.h"

namespace slotwise::test {

inline constexpr HashSecret kTestSecret{0x0706'0504'0302'0100, 0x0F0E'0D0C'0B0A'0908};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_TEST_SECRET_H_
