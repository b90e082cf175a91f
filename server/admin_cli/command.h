// The commands of kaonctl, and what kind each is. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_COMMAND_H_

namespace kaon::admin_cli {

enum class Command {
  kStatus,
  kStatusEvents,
  kEventsWatch,
  kTop,
  kJobShow,
  kJobEffective,
  kJobList,
  kJobDelete,
  kParameters,
  kSteps,
  kStepPhases,
  kStepsFollow,
  kDigest,
  kBackend,
  kTiers,
  kMeasureForms,
  kHealth,
  kVerifyNumerics,
  kParameterStats,
  kParameterDiagnostics,
  kParameterRead,
  kParameterHistory,
  kGroupSet,
  kCheckpointList,
  kCheckpointVerify,
  kCheckpointExport,
  kCheckpointImport,
  kCheckpointRestore,
  kCheckpointCreate,
  kCheckpointDelete,
  kShardDrain,
  kLogSet,
  kConfig,
  kWorkerList,
  kPreflight,
  // kPreflight on numbers that the user gives, without a cluster.
  kPreflightOffline,
  kVersion
};

// Returns whether the command changes nothing, so that it may be repeated.
bool ChangesNothing(Command command);

// Returns whether a reader may run the command. It changes nothing then.
bool IsAReaders(Command command);

// Returns whether a checkpointer may run the command.
bool IsACheckpointers(Command command);

// Returns whether the command repeats by itself, so that --watch may not repeat it.
bool RepeatsByItself(Command command);

// Returns whether the command runs on this machine alone and needs no endpoints.
bool IsOffline(Command command);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_COMMAND_H_
