// Damage: changes to a server's files between two of its lives, beside those by a crash. A file of a
// checkpoint or of a journal is changed, cut or lost.
//
// A recovery must lose nothing, or refuse to start. The end of the newest journal is the exception: bytes
// that a crash may have torn count as torn, unless a later record or mark says that they were on disk.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_DAMAGE_H_
#define SLOTWISE_TESTS_SIM_DAMAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/durability/sim_files.h"
#include "tests/support/batches.h"

namespace slotwise::sim {

using test::Random;

// A file that was changed, and its contents before.
struct Damage {
  std::string path;
  std::vector<std::byte> bytes;
  bool of_journal = false;
  // A recovery may end with any round from this one on. Nothing: it loses no round.
  std::optional<std::uint64_t> may_lose_behind = {};
};

// Changes, cuts or empties a file of some checkpoint. Returns nothing if there is none.
std::optional<Damage> DamageCheckpoint(Random& random, SimFiles& files);

// Changes, cuts or removes a segment of a journal. `recovered` is the round with which the last life began.
// Returns nothing if that life left no journal.
std::optional<Damage> DamageJournal(Random& random, SimFiles& files, std::uint64_t recovered);

// Restores the file.
void Mend(SimFiles& files, const Damage& damage);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DAMAGE_H_
