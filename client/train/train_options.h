// The command line of kaon-train, checked and with its defaults. Plain values and pure functions;
// any thread.
#ifndef KAON_CLIENT_TRAIN_TRAIN_OPTIONS_H_
#define KAON_CLIENT_TRAIN_TRAIN_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/kaon/client.h"
#include "client/train/corpus.h"
#include "client/train/language_model.h"
#include "kernels/dtype.h"

namespace kaon::train {

// Steps that run without a rank.
struct Absence {
  uint32_t rank = 0;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
};

struct TrainOptions {
  std::string job = "kaon-train";
  // Run without servers, in this process.
  bool local = false;
  // Backend for the matrix products of --local: amx, onednn or reference. If empty, chosen as a
  // shard does.
  std::string gemm;
  std::vector<std::string> coordinators;
  // Directory with ca.crt and worker-<rank>.{crt,key}, or worker.{crt,key} for the ranks
  // without one. Otherwise the three files.
  std::string tls_dir;
  kaon::TlsFiles tls;
  // Unset: the library's default.
  std::optional<kaon::Transport> transport;
  // If set, gradients are copied to a GPU and sent from there by NCCL over this network.
  std::string nccl;
  int nccl_device = 0;

  uint32_t workers = 2;
  // Absences for --local: leaving out the same ranks repeats the result of a job with worker_loss
  // shrink.
  std::vector<Absence> absences;
  // If set, this process runs only this rank.
  std::optional<uint32_t> rank;
  // Relative shares of the batch by rank; one for each worker.
  std::vector<uint32_t> split;

  uint64_t steps = 250;
  // Ends the run at this step, on the schedule of `steps`; 0: at `steps`.
  uint64_t stop_after = 0;
  uint64_t seed = 1;
  int batch_size = 512;
  // The vocabulary comes from the corpus.
  ModelShape model = {.vocabulary = 0, .context = 16, .embedding = 24, .hidden = 192, .blocks = 2};
  // If set, it replaces the two groups and the norm limit below.
  std::string preset;
  double muon_lr = 0.02;
  double adamw_lr = 0.006;
  // Limit on the norm of the gradients of group adamw, which are not exempt. The limit is near
  // their usual norm, so that runs clip.
  double max_grad_norm = 0.5;
  // Fields of the job definition; unset: its defaults.
  std::optional<kaon::ClipScope> clip_scope;
  std::optional<double> clip_floor;
  // Clip policy of group muon.
  std::optional<kaon::ClipPolicy> muon_clip_policy;
  std::optional<kaon::NormMode> norm_mode;
  // Storage of the momenta of both groups, and of the second moments of group adamw.
  std::optional<kaon::StateDType> momentum_dtype;
  std::optional<kaon::StateDType> exp_avg_sq_dtype;
  // Place of both groups on a shard.
  std::optional<kaon::Tier> tier;
  std::optional<kaon::WorkerLoss> worker_loss;
  std::optional<double> worker_loss_seconds;
  std::optional<double> step_seconds;
  kernels::DType push_dtype = kernels::DType::kFloat32;
  kernels::DType pull_dtype = kernels::DType::kFloat32;
  std::string corpus_dir = kDefaultCorpusDirectory;
  // Factor on the learning rate of single groups in every step, by name.
  std::map<std::string, double> group_multipliers;
  // 0: never.
  uint64_t poison_step = 0;
  // Multiplies the gradient of one parameter, to show the effect of a spike. Empty name: none.
  struct {
    std::string parameter;
    double factor = 1;
  } scale_gradient;

  uint64_t report_every = 20;
  std::string log_jsonl;
};

// The options; or the text to print and the exit status (0 for --help).
struct ParsedCommandLine {
  std::optional<TrainOptions> options;
  std::string text;
  int exit_status = 0;
};

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv);

// INVALID_ARGUMENT names the first option that does not fit the others.
absl::Status ValidateOptions(const TrainOptions& options);

// Returns the PEM files of one rank.
kaon::TlsFiles TlsFilesOf(const TrainOptions& options, uint32_t rank);

// Returns the job of these options. Hidden matrices go to group "muon", all other parameters to
// "adamw". Gradients that can be clipped are clipped to norm max_grad_norm. A preset brings its own
// groups and limit.
kaon::JobDefinition MakeJobDefinition(const TrainOptions& options, const ModelShape& model);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_TRAIN_OPTIONS_H_
