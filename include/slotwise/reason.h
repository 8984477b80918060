// A Reason says why a request was refused, as a number for programs. A Status says the same in words.
// Thread-safety: plain values and free functions.
#ifndef SLOTWISE_REASON_H_
#define SLOTWISE_REASON_H_

#include <cstdint>
#include <string_view>

namespace slotwise {

// The numbers are those of slotwise.v1.Reason. A code's first reason is for refusals that have no other.
enum class Reason : std::uint8_t {
  kNone = 0,  // OK. On the wire also a refusal of gRPC, a proxy or an older server, which gives no reason
  // INVALID_ARGUMENT
  // The message names the field and its value.
  kInvalidValue = 1,
  // The bytes are no message of the method's type.
  kMalformed = 2,
  // NOT_FOUND
  // Nothing has the name that the request gives; the message says the name.
  kNotFound = 10,
  // There is no table of that name, or it was dropped while the request waited.
  kNoTable = 11,
  // There is no checkpoint of that id, or it has no table of that name.
  kNoCheckpoint = 12,
  // ALREADY_EXISTS
  // The name is taken already; the message says the name.
  kAlreadyExists = 20,
  // A table of that name exists with other options; the message names the first that differs.
  kOtherOptions = 21,
  // FAILED_PRECONDITION
  // The request is legal, but not in this state; the message says which.
  kWrongState = 30,
  // The step may have been applied before: the server does not know its session, and has forgotten sessions
  // of its age, or its epoch is another server's.
  kSessionForgotten = 31,
  // The step may have been applied before: it is too far behind its session's newest.
  kStepTooOld = 32,
  // The step came before with other tables, keys, weights, gradients or learning rate.
  kStepDiffers = 33,
  // The server was started without a data folder.
  kNoDataFolder = 35,
  // The client is closed, or was made before a fork.
  kClientClosed = 36,
  // The program that answers is no Slotwise server of a version that this client speaks with.
  kOtherVersion = 37,
  // No rank shares memory of that GPU with this process.
  kNoSharedGpu = 38,
  // The table was made anew with other options meanwhile: the same call may succeed.
  kTableChanged = 39,
  // RESOURCE_EXHAUSTED
  // A limit is reached; the message names it.
  kNoRoom = 50,
  // The server has no room now, but will have: the error says when to try again.
  kBusy = 51,
  // The table has max_rows rows.
  kTableFull = 52,
  // The request, the step or the reply is larger than a limit ever allows; the message names the limit.
  kTooLarge = 53,
  // There is no memory, of a device or of a host.
  kNoMemory = 54,
  // A disk of the server's is full, or takes rows too slowly.
  kDiskFull = 55,
  // DEADLINE_EXCEEDED
  // The deadline passed before the request's turn came, or the answer was not there by then.
  kTooLate = 60,
  // Not all parts of the step came in time: nothing of it was applied.
  kStepIncomplete = 61,
  // UNAVAILABLE
  // No answer came: there is no connection, or the rank is gone.
  kNoAnswer = 70,
  // The server is starting.
  kStarting = 71,
  // The server is stopping.
  kStopping = 72,
  // A checkpoint was loaded while the request waited.
  kStateReplaced = 73,
  // A rank's journal has failed, or the journal or the checkpoints are slower than the pushes.
  kJournalBehind = 74,
  // CANCELLED
  // The caller cancelled the call.
  kCancelled = 80,
  // The push that the call waited for has failed.
  kPushBeforeFailed = 81,
  // UNAUTHENTICATED
  // The server does not know who calls.
  kUnknownCaller = 90,
  // PERMISSION_DENIED
  // The caller lacks the right; the message names it.
  kNoRight = 100,
  // DATA_LOSS
  // A file or a record is damaged; the message names the place.
  kDamaged = 110,
  // The table no longer has a step that this client saw acknowledged.
  kStepsLost = 111,
  // INTERNAL
  // A bug in Slotwise, or a broken device.
  kBug = 120,
};

// Returns the reason's name on the wire, "TABLE_FULL"; "" for kNone and for a number that is no reason. The
// text ends with 0.
std::string_view ToString(Reason reason);

}  // namespace slotwise

#endif  // SLOTWISE_REASON_H_
