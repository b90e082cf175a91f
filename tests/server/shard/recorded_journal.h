// What a shard appended to its journal, kept in memory with the values of its gradients, for tests
// that read it back. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_RECORDED_JOURNAL_H_
#define KAON_TESTS_SERVER_SHARD_RECORDED_JOURNAL_H_

#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "server/journal/record.h"

namespace kaon::shard {

class RecordedJournal {
 public:
  void Append(const journal::Record& record) {
    std::visit([this](const auto& one) { entries_.push_back(one); }, record);
  }
  void Append(journal::GradientSlice slice) {
    values_.emplace_back(slice.values.begin(), slice.values.end());
    slice.values = values_.back();
    entries_.push_back(slice);
  }

  const std::vector<journal::Entry>& entries() const { return entries_; }

  // Of one kind, in order.
  template <typename Kind>
  std::vector<Kind> All() const {
    std::vector<Kind> all;
    for (const journal::Entry& entry : entries_) {
      if (const auto* one = std::get_if<Kind>(&entry)) all.push_back(*one);
    }
    return all;
  }

 private:
  std::vector<journal::Entry> entries_;
  // A deque, so that what slices borrow never moves.
  std::deque<std::vector<float>> values_;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_RECORDED_JOURNAL_H_
