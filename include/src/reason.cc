#include "slotwise/reason.h"

namespace slotwise {

std::string_view ToString(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "";
    case Reason::kInvalidValue:
      return "INVALID_VALUE";
    case Reason::kMalformed:
      return "MALFORMED";
    case Reason::kNotFound:
      return "NOT_FOUND";
    case Reason::kNoTable:
      return "NO_TABLE";
    case Reason::kNoCheckpoint:
      return "NO_CHECKPOINT";
    case Reason::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Reason::kOtherOptions:
      return "OTHER_OPTIONS";
    case Reason::kWrongState:
      return "WRONG_STATE";
    case Reason::kSessionForgotten:
      return "SESSION_FORGOTTEN";
    case Reason::kStepTooOld:
      return "STEP_TOO_OLD";
    case Reason::kStepDiffers:
      return "STEP_DIFFERS";
    case Reason::kNoDataFolder:
      return "NO_DATA_FOLDER";
    case Reason::kClientClosed:
      return "CLIENT_CLOSED";
    case Reason::kOtherVersion:
      return "OTHER_VERSION";
    case Reason::kNoSharedGpu:
      return "NO_SHARED_GPU";
    case Reason::kTableChanged:
      return "TABLE_CHANGED";
    case Reason::kNoRoom:
      return "NO_ROOM";
    case Reason::kBusy:
      return "BUSY";
    case Reason::kTableFull:
      return "TABLE_FULL";
    case Reason::kTooLarge:
      return "TOO_LARGE";
    case Reason::kNoMemory:
      return "NO_MEMORY";
    case Reason::kDiskFull:
      return "DISK_FULL";
    case Reason::kTooLate:
      return "TOO_LATE";
    case Reason::kStepIncomplete:
      return "STEP_INCOMPLETE";
    case Reason::kNoAnswer:
      return "NO_ANSWER";
    case Reason::kStarting:
      return "STARTING";
    case Reason::kStopping:
      return "STOPPING";
    case Reason::kStateReplaced:
      return "STATE_REPLACED";
    case Reason::kJournalBehind:
      return "JOURNAL_BEHIND";
    case Reason::kCancelled:
      return "CANCELLED";
    case Reason::kPushBeforeFailed:
      return "PUSH_BEFORE_FAILED";
    case Reason::kUnknownCaller:
      return "UNKNOWN_CALLER";
    case Reason::kNoRight:
      return "NO_RIGHT";
    case Reason::kDamaged:
      return "DAMAGED";
    case Reason::kStepsLost:
      return "STEPS_LOST";
    case Reason::kBug:
      return "BUG";
  }
  return "";
}

}  // namespace slotwise
