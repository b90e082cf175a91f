// The list of element-wise rules. A rule is one header beside this one and one word here (and its
// configuration in optimizer_rule.h); its slots, checks, cost and bulk loop on every backend follow
// from the list. No state; any thread.
#ifndef KAON_KERNELS_RULES_ELEMENT_WISE_RULES_H_
#define KAON_KERNELS_RULES_ELEMENT_WISE_RULES_H_

#include "kernels/rules/adamw.h"
#include "kernels/rules/type_list.h"

namespace kaon::kernels {

using ElementWiseRules = TypeList<AdamW>;

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_ELEMENT_WISE_RULES_H_
