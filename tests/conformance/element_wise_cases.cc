#include "tests/conformance/element_wise_cases.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/conformance/pairwise.h"
#include "tests/conformance/trial.h"

namespace kaon::conformance {
namespace {

using kernels::AdamEpsMode;
using kernels::AdamWConfig;
using kernels::Backend;
using kernels::DecayMode;
using kernels::LionConfig;
using kernels::SgdConfig;
using kernels::StateDType;

constexpr DecayMode kDecayModes[] = {DecayMode::kDecoupled, DecayMode::kIndependent, DecayMode::kL2,
                                     DecayMode::kPalm};
constexpr const char* kDecayNames[] = {"decoupled", "independent", "l2", "palm"};
constexpr StateDType kMomentumDTypes[] = {StateDType::kFloat32, StateDType::kBFloat16,
                                          StateDType::kInt8};
constexpr const char* kMomentumDTypeNames[] = {"m_fp32", "m_bf16", "m_int8"};
constexpr Input kInputs[] = {Input::kGaussian, Input::kTiny, Input::kHuge, Input::kZeroFirst};
constexpr const char* kInputNames[] = {"gaussian", "tiny", "huge", "zero_first"};
// Of one element, of less than one vector, and of several blocks with a tail.
constexpr uint64_t kLengths[] = {1, 13, 1037};

// Dimensions of every element-wise rule; those of one rule follow them.
enum Dimension { kLength, kInput, kMomentumDType, kDecay, kFirstOwn };

constexpr double kWeightDecay = 0.125;

template <typename Config>
void SetShared(const Row& row, Config& config) {
  config.weight_decay = kWeightDecay;
  config.decay_mode = kDecayModes[row[kDecay]];
  config.momentum_dtype = kMomentumDTypes[row[kMomentumDType]];
}

std::string SharedName(const Row& row) {
  return absl::StrCat(kLengths[row[kLength]], " ", kInputNames[row[kInput]], " ",
                      kMomentumDTypeNames[row[kMomentumDType]], " ", kDecayNames[row[kDecay]]);
}

struct Rows {
  const char* rule;
  const char* rule_ids;
  // Values of the rule's own dimensions.
  std::vector<int> own_sizes;
  RowFilter allowed;
};

// `config_of` returns a row's configuration and the rest of its name.
template <typename ConfigOf>
void AddRows(const Rows& rows, const ConfigOf& config_of, std::vector<NumericsCase>& cases) {
  std::vector<int> sizes = {3, 4, 3, 4};
  sizes.insert(sizes.end(), rows.own_sizes.begin(), rows.own_sizes.end());
  uint32_t seed = 1;
  for (const Row& row : CoverPairs(sizes, rows.allowed)) {
    auto [config, own_name] = config_of(row);
    SetShared(row, config);
    const Trial trial{config, {kLengths[row[kLength]]}, kInputs[row[kInput]], seed++};
    const std::string name = absl::StrCat(SharedName(row), own_name);
    cases.push_back({rows.rule, name, rows.rule_ids, "weights", 1e-6, [trial](Backend& backend) {
                       return WeightError(trial, Stored::kExact, backend);
                     }});
    cases.push_back({rows.rule, name, rows.rule_ids, "state", 1e-6,
                     [trial](Backend& backend) { return StateError(trial, backend); }});
  }
}

// The squares of huge gradients are beyond fp32, those of tiny ones below it ([A3], [A5]).
std::pair<AdamWConfig, std::string> AdamW(const Row& row) {
  AdamWConfig config;
  config.beta1 = row[kFirstOwn] == 0 ? 0.9 : 0.0;
  config.beta2 = row[kFirstOwn + 1] == 0 ? 0.95 : 0.999;
  config.eps_mode = row[kFirstOwn + 2] == 0 ? AdamEpsMode::kOutside : AdamEpsMode::kUncorrected;
  config.amsgrad = row[kFirstOwn + 3] == 1;
  config.bias_correction = row[kFirstOwn + 4] == 0;
  // The larger eps is visible next to the root.
  config.eps = row[kFirstOwn + 5] == 0 ? 1e-8 : 0.1;
  config.exp_avg_sq_dtype = row[kFirstOwn + 6] == 0 ? StateDType::kFloat32 : StateDType::kSqrtUInt8;
  return {config, absl::StrCat(row[kFirstOwn + 6] == 0 ? "" : " v_sqrt_uint8",
                               " beta1=", config.beta1, " beta2=", config.beta2,
                               " eps=", config.eps, row[kFirstOwn + 2] == 0 ? "" : " uncorrected",
                               config.amsgrad ? " amsgrad" : "",
                               config.bias_correction ? "" : " no_bias_correction")};
}

std::pair<SgdConfig, std::string> Sgd(const Row& row) {
  SgdConfig config;
  config.momentum = row[kFirstOwn] == 0 ? 0.0 : 0.9;
  config.dampening = row[kFirstOwn + 1] == 0 ? 0.0 : 0.25;
  config.nesterov = row[kFirstOwn + 2] == 1;
  return {config, absl::StrCat(" momentum=", config.momentum, " dampening=", config.dampening,
                               config.nesterov ? " nesterov" : "")};
}

// Nesterov needs momentum, and no dampening.
bool SgdAllows(const Row& row) {
  if (row[kFirstOwn + 2] != 1) return true;
  return row[kFirstOwn] != 0 && row[kFirstOwn + 1] != 1;
}

std::pair<LionConfig, std::string> Lion(const Row& row) {
  LionConfig config;
  config.beta1 = row[kFirstOwn] == 0 ? 0.95 : 0.5;
  config.beta2 = row[kFirstOwn + 1] == 0 ? 0.98 : 0.75;
  return {config, absl::StrCat(" beta1=", config.beta1, " beta2=", config.beta2)};
}

}  // namespace

std::vector<NumericsCase> ElementWiseCases() {
  std::vector<NumericsCase> cases;
  const RowFilter all = [](const Row&) { return true; };
  AddRows({"adamw", "[A1] [A2] [A4] [A5] [W1] [Q1] [Q2]", {2, 2, 2, 2, 2, 2, 2}, all}, AdamW,
          cases);
  AddRows({"sgd", "[G1] [W1] [Q1]", {2, 2, 2}, SgdAllows}, Sgd, cases);
  AddRows({"lion", "[G2] [W1] [Q1]", {2, 2}, all}, Lion, cases);
  return cases;
}

}  // namespace kaon::conformance
