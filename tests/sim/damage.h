// Damage: what is done to a server's files between two of its lives, beside what a crash does: a file of a
// checkpoint or of a journal is changed, cut or lost.
//
// A recovery has to find a way around it that loses nothing, or to stop; but for the end of the newest
// journal: what a crash may have torn is taken for torn, unless what is left, a record or a mark, says that
// it was on disk.
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

// A file that was changed, and what was in it.
struct Damage {
  std::string path;
  std::vector<std::byte> bytes;
  bool of_journal = false;
  // A recovery may end with any round from this one on; nothing: it loses nothing.
  std::optional<std::uint64_t> may_lose_behind = {};
};

// Changes, cuts or empties a file of some checkpoint. Nothing if there is none.
std::optional<Damage> DamageCheckpoint(Random& random, SimFiles& files);

// Changes, cuts or removes a segment of a journal. `recovered`: the round that the last life began with.
// Nothing if that life left no journal.
std::optional<Damage> DamageJournal(Random& random, SimFiles& files, std::uint64_t recovered);

// Has the file be as it was.
void Mend(SimFiles& files, const Damage& damage);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DAMAGE_H_
