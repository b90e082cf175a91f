// From a group of a job, every option written out (effective.h), to what the kernels run. Pure
// functions; any thread.
#ifndef KAON_JOB_RULE_CONFIG_H_
#define KAON_JOB_RULE_CONFIG_H_

#include "kaon/v1/parameters.pb.h"
#include "kernels/matrix_layout.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/optimizer_rule.h"

namespace kaon::job {

// Hyper-parameters of `group` for stepping a parameter.
kernels::RuleConfig RuleConfigOf(const v1::ParameterGroup& group,
                                 const v1::ParameterSpec& parameter,
                                 const v1::ParameterPlacement& placement);

// The same for a plain matrix without overrides of its own.
kernels::RuleConfig RuleConfigOf(const v1::ParameterGroup& group);

// The Newton-Schulz part of a group's options.
kernels::NewtonSchulzConfig NewtonSchulzConfigOf(const v1::MuonOptions& muon);

// A layout whose kind is written out; `transposed` is the parameter's.
kernels::MatrixLayout LayoutOf(const v1::MatrixLayout& layout);

// Whether the norm clip leaves this group alone: its policy, or else its rule's scale-invariance
// ([C7]).
bool IsClipExempt(const v1::ParameterGroup& group);

}  // namespace kaon::job

#endif  // KAON_JOB_RULE_CONFIG_H_
