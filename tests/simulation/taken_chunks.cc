#include "tests/simulation/taken_chunks.h"

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"

namespace kaon::simulation {

void TakenChunks::OnOpened(int shard, uint32_t rank, const v1::PushOpened& opened) {
  std::map<Key, std::vector<Chunk>> has;
  for (const v1::ReceivedChunks& received : opened.received()) {
    const Key key{shard, rank, received.parameter_id(), received.micro_batch()};
    std::vector<Chunk> chunks = chunks_[key];
    while (!chunks.empty() && chunks.back().end > received.num_elements()) chunks.pop_back();
    const uint64_t end = chunks.empty() ? 0 : chunks.back().end;
    if (end < received.num_elements()) chunks.push_back({received.num_elements(), {}});
    has[key] = std::move(chunks);
  }
  chunks_.erase(chunks_.lower_bound({shard, rank, 0, 0}),
                chunks_.lower_bound({shard, rank + 1, 0, 0}));
  chunks_.merge(has);
}

void TakenChunks::OnTaken(int shard, uint32_t rank, const v1::Attempt& attempt,
                          const v1::TensorChunk& chunk) {
  std::vector<Chunk>& chunks = chunks_[{shard, rank, chunk.parameter_id(), chunk.micro_batch()}];
  if (!chunks.empty() && chunk.offset() < chunks.back().end) return;
  chunks.push_back({chunk.offset() + chunk.num_elements(), attempt});
}

std::string TakenChunks::Check(int shard, const v1::Member& member, uint32_t parameter_id,
                               uint64_t num_elements) const {
  for (uint32_t micro = 0; micro < member.micro_batches(); ++micro) {
    const std::string what = absl::StrCat("parameter ", parameter_id, " of rank ", member.rank(),
                                          " micro-batch ", micro);
    const auto found = chunks_.find({shard, member.rank(), parameter_id, micro});
    const uint64_t taken = found == chunks_.end() ? 0 : found->second.back().end;
    if (taken != num_elements) {
      return absl::StrCat(what, ": ", taken, " elements, expecting ", num_elements);
    }
    for (const Chunk& chunk : found->second) {
      if (proto::Compare(chunk.attempt, member.attempt()) == 0) continue;
      return absl::StrCat(what, ": elements up to ", chunk.end, " of attempt ",
                          proto::ToString(chunk.attempt), ", the plan has ",
                          proto::ToString(member.attempt()));
    }
  }
  return "";
}

}  // namespace kaon::simulation
