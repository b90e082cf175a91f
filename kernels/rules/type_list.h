// A compile-time list of types and queries on it. Rules are listed this way instead of being
// registered. No state; any thread.
#ifndef KAON_KERNELS_RULES_TYPE_LIST_H_
#define KAON_KERNELS_RULES_TYPE_LIST_H_

#include <cstddef>
#include <type_traits>

namespace kaon::kernels {

template <typename... Types>
struct TypeList {
  static constexpr size_t kSize = sizeof...(Types);
};

// Finds the rule in a list whose Config is `Config`; `type` is void if there is none.
template <typename Config, typename List>
struct FindRule {
  using type = void;
};

template <typename Config, typename First, typename... Rest>
struct FindRule<Config, TypeList<First, Rest...>> {
  using type = std::conditional_t<std::is_same_v<Config, typename First::Config>, First,
                                  typename FindRule<Config, TypeList<Rest...>>::type>;
};

// Inserts `First` before the members of each of `Lists`.
template <typename First, typename List>
struct Prepend;

template <typename First, typename... Rest>
struct Prepend<First, TypeList<Rest...>> {
  using type = TypeList<First, Rest...>;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_TYPE_LIST_H_
