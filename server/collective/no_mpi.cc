// A program without MPI (slotwise-server-solo) links this file in place of the MPI sources. The program runs
// as one rank, and refuses to run as one of several.
#include <cstdlib>
#include <stdexcept>

#include "server/collective/collective.h"
#include "server/collective/exchange.h"

namespace slotwise {
namespace {

[[noreturn]] void ThrowNoMpi() {
  throw std::runtime_error("this program was built without MPI: it is one rank, and mpirun cannot start it");
}

}  // namespace

MpiSession::MpiSession() { ThrowNoMpi(); }

MpiSession::~MpiSession() { std::abort(); }  // never runs, because no session is ever made

void MpiSession::AbortAllRanks(int exit_code) { std::_Exit(exit_code); }

std::unique_ptr<Collective> MakeMpiCollective(HostMemoryUse /*use*/) { ThrowNoMpi(); }

std::unique_ptr<Exchange> MakeMpiExchange(Device& /*device*/, Stream& /*stream*/, Collective& /*collective*/,
                                          const std::string& /*why*/) {
  ThrowNoMpi();
}

}  // namespace slotwise
