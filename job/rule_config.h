// Converts a group of a job to the configuration of the kernels. The group must have every option
// written out (effective_job.h). Pure functions; any thread.
#ifndef KAON_JOB_RULE_CONFIG_H_
#define KAON_JOB_RULE_CONFIG_H_

#include "kaon/v1/parameters.pb.h"
#include "kernels/matrix_layout.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/optimizer_rule.h"

namespace kaon::job {

// Returns the hyper-parameters of `group` for one parameter.
kernels::RuleConfig RuleConfigOf(const v1::ParameterGroup& group,
                                 const v1::ParameterSpec& parameter,
                                 const v1::ParameterPlacement& placement);

// Returns the hyper-parameters for a plain matrix without overrides of its own.
kernels::RuleConfig RuleConfigOf(const v1::ParameterGroup& group);

// Converts the Newton-Schulz part of a group's options.
kernels::NewtonSchulzConfig NewtonSchulzConfigOf(const v1::MuonOptions& muon);

// Converts a layout that has its kind set. `transposed` belongs to the parameter and is not set
// here.
kernels::MatrixLayout LayoutOf(const v1::MatrixLayout& layout);

// Returns whether norm clipping skips this group, by its policy or else because its rule is
// scale-invariant ([C7]).
bool IsClipExempt(const v1::ParameterGroup& group);

}  // namespace kaon::job

#endif  // KAON_JOB_RULE_CONFIG_H_
