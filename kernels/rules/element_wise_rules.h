// The list of element-wise rules. To add a rule, write one header in this folder, one word here,
// and its configuration in optimizer_rule.h. Its slots, checks, cost and bulk loop on every backend
// follow from the list. A configuration uses the first NumSlots(config) of its rule's kSlots.
// SlotDType says how each slot is stored. No state; any thread.
#ifndef KAON_KERNELS_RULES_ELEMENT_WISE_RULES_H_
#define KAON_KERNELS_RULES_ELEMENT_WISE_RULES_H_

#include "kernels/rules/adamw.h"
#include "kernels/rules/lion.h"
#include "kernels/rules/sgd.h"
#include "kernels/rules/type_list.h"

namespace kaon::kernels {

using ElementWiseRules = TypeList<AdamW, Sgd, Lion>;

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_ELEMENT_WISE_RULES_H_
