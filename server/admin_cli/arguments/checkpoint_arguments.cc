#include "server/admin_cli/arguments/checkpoint_arguments.h"

#include "server/admin_cli/arguments/add_command.h"

namespace kaon::admin_cli {

void AddCheckpointCommands(CLI::App& app, Options& options) {
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "Checkpoints of a job");
  checkpoint->require_subcommand(1);
  checkpoint->fallthrough();
  AddCommand(*checkpoint, "list", "What the coordinator's checkpoint directory holds, newest first",
             Command::kCheckpointList, options);
  CLI::App* verify = AddCommand(*checkpoint, "verify", "Read every byte of a checkpoint",
                                Command::kCheckpointVerify, options);
  verify->add_option("ID", options.checkpoint, "Its id")->required();
  CLI::App* create =
      AddCommand(*checkpoint, "create", "Write the state of the job as it is, while it goes on",
                 Command::kCheckpointCreate, options);
  create->add_option("ID", options.checkpoint, "Its id (default: JOB-TIMELINE-POSITION)");
  CLI::App* restore = AddCommand(*checkpoint, "restore",
                                 "Go on from a checkpoint, as a new timeline, or start its job",
                                 Command::kCheckpointRestore, options);
  restore->add_option("ID", options.checkpoint, "Its id (default: the newest good one)");
  restore->add_option("--expect-step", options.expected_step,
                      "Only if the job is at this one or further (default: the one it is at now)");
  CLI::App* deleted = AddCommand(*checkpoint, "delete", "Remove a checkpoint and its files",
                                 Command::kCheckpointDelete, options);
  deleted->add_option("ID", options.checkpoint, "Its id")->required();
  for (CLI::App* one : {restore, deleted}) {
    one->add_flag("--yes", options.confirmed, "Do not ask; needed without a terminal");
  }
  restore->add_flag("--allow-other-build", options.allow_other_build,
                    "Even if another build, backend or device class than the shards' wrote it");
  CLI::App* exported =
      AddCommand(*checkpoint, "export", "Its weights as one safetensors file; needs no cluster",
                 Command::kCheckpointExport, options);
  exported->add_option("ID", options.checkpoint, "Its id")->required();
  exported->add_option("--out", options.file, "The file to write")->required();
  exported->add_option("--dtype", options.dtype, "float32 (the masters) or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  exported->add_flag("--state", options.with_state, "Also optimizer state; all in float32")
      ->excludes("--dtype");
  CLI::App* import =
      AddCommand(*checkpoint, "import", "A checkpoint of step 0 out of weights; needs no cluster",
                 Command::kCheckpointImport, options);
  import->add_option("FILE", options.file, "A safetensors file with every parameter")->required();
  import->add_option("--job", options.job_file, "The job's definition, .textproto or .json")
      ->required();
  import->add_option("--id", options.checkpoint, "Id of the new checkpoint")->required();
  for (CLI::App* one : {exported, import}) {
    one->add_option("--checkpoint-dir", options.checkpoint_directory, "Where checkpoints lie")
        ->envname("KAON_CHECKPOINT_DIR")
        ->required();
  }
}

}  // namespace kaon::admin_cli
