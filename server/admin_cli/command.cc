#include "server/admin_cli/command.h"

namespace kaon::admin_cli {

bool IsOffline(Command command) {
  return command == Command::kVerifyNumerics || command == Command::kMeasureForms ||
         command == Command::kCheckpointExport || command == Command::kCheckpointImport ||
         command == Command::kVersion || command == Command::kPreflightOffline;
}

bool ChangesNothing(Command command) {
  switch (command) {
    case Command::kGroupSet:
    case Command::kJobDelete:
    case Command::kCheckpointCreate:
    case Command::kCheckpointDelete:
    case Command::kCheckpointExport:
    case Command::kCheckpointImport:
    case Command::kCheckpointRestore:
    case Command::kShardDrain:
    case Command::kLogSet:
      return false;
    case Command::kConfig:
    case Command::kStatus:
    case Command::kStatusEvents:
    case Command::kEventsWatch:
    case Command::kTop:
    case Command::kJobShow:
    case Command::kJobEffective:
    case Command::kJobList:
    case Command::kParameters:
    case Command::kSteps:
    case Command::kStepPhases:
    case Command::kStepsFollow:
    case Command::kDigest:
    case Command::kBackend:
    case Command::kTiers:
    case Command::kMeasureForms:
    case Command::kHealth:
    case Command::kVerifyNumerics:
    case Command::kParameterStats:
    case Command::kParameterDiagnostics:
    case Command::kParameterRead:
    case Command::kParameterHistory:
    case Command::kCheckpointList:
    case Command::kCheckpointVerify:
    case Command::kWorkerList:
    case Command::kPreflight:
    case Command::kPreflightOffline:
    case Command::kVersion:
      break;
  }
  return true;
}

bool IsAReaders(Command command) { return ChangesNothing(command) && command != Command::kConfig; }

bool IsACheckpointers(Command command) {
  switch (command) {
    case Command::kStatus:
    case Command::kStatusEvents:
    case Command::kEventsWatch:
    case Command::kWorkerList:
    case Command::kDigest:
    case Command::kTiers:
    case Command::kHealth:
    case Command::kCheckpointList:
    case Command::kCheckpointVerify:
    case Command::kCheckpointCreate:
      return true;
    default:
      return false;
  }
}

bool RepeatsByItself(Command command) {
  return command == Command::kTop || command == Command::kEventsWatch ||
         command == Command::kStepsFollow;
}

}  // namespace kaon::admin_cli
