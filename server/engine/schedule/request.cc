#include "server/engine/schedule/request.h"

namespace slotwise {

bool Request::is_abandoned() const {
  const StepId* const part = step();
  const bool others_wait = part != nullptr && (part->parts > 1 || part->tables > 1);
  return !others_wait && caller().gone();
}

}  // namespace slotwise
