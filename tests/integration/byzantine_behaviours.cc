#include "tests/integration/byzantine_behaviours.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "proto/shm_link.h"
#include "tests/server/shard/transport/shm_worker.h"

namespace kaon {

namespace {

using grpc::StatusCode;
using proto::ShmRecord;
using Behaviours = std::vector<Behaviour>;

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
// Parameters of the tiny job.
constexpr uint32_t kEmbed = 0;
constexpr uint32_t kBias = 2;
constexpr uint32_t kFrozen = 3;
// A parameter of one element.
constexpr uint32_t kScale = 4;
// Most pieces of a message.
constexpr int kMostPieces = 1024;
constexpr int kMillion = 1000000;

Behaviour Registers(const char* name, StatusCode code, const char* names,
                    std::function<void(v1::JobDefinition&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::JobDefinition job = peer.job();
            spoil(job);
            return peer.Register(job);
          }};
}
Behaviour Joins(const char* name, StatusCode code, const char* names,
                std::function<void(v1::JoinWorkerRequest&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::JoinWorkerRequest request = peer.JoinRequest();
            spoil(request);
            return peer.Join(request);
          }};
}
Behaviour Begins(const char* name, StatusCode code, const char* names,
                 std::function<void(v1::BeginStepRequest&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::BeginStepRequest request = peer.BeginRequest();
            spoil(request);
            return peer.Begin(request);
          }};
}
Behaviour Awaits(const char* name, StatusCode code, const char* names,
                 std::function<void(v1::AwaitStepRequest&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::AwaitStepRequest request = peer.AwaitRequest();
            spoil(request);
            return peer.Await(request);
          }};
}
Behaviour Opens(const char* name, StatusCode code, const char* names,
                std::function<void(v1::PushOpen&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::PushRequest request = peer.Open();
            spoil(*request.mutable_open());
            return peer.Push({request});
          }};
}
// Pushes a chunk of hidden.bias, six elements.
Behaviour Chunks(const char* name, StatusCode code, const char* names,
                 std::function<void(v1::PushRequest&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::PushRequest request = peer.Chunk(kBias);
            spoil(request);
            return peer.Push({peer.Open(), request});
          }};
}
Behaviour Finishes(const char* name, StatusCode code, const char* names,
                   std::function<void(v1::PushFinish&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::PushRequest request = ByzantinePeer::Finish();
            spoil(*request.mutable_finish());
            return peer.Push({peer.Open(), request});
          }};
}
Behaviour Pulls(const char* name, StatusCode code, const char* names,
                std::function<void(v1::PullRequest&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::PullRequest request = peer.PullRequest();
            spoil(request);
            return peer.Pull(request);
          }};
}

constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;

Behaviours OfRegistration() {
  return {
      Registers("job without a name", kInvalid, "name", [](auto& j) { j.clear_name(); }),
      Registers("job without workers", kInvalid, "world_size is 0, must be 1 .. 4096",
                [](auto& j) { j.set_world_size(0); }),
      Registers("job of too many workers", kInvalid, "world_size is 5000, must be 1 .. 4096",
                [](auto& j) { j.set_world_size(5000); }),
      Registers("shape of no elements", kInvalid, "shape[0] is 0, must be >= 1",
                [](auto& j) { j.mutable_parameters(0)->set_shape(0, 0); }),
      Registers("shape whose product overflows", kInvalid, "shape[1] is",
                [](auto& j) {
                  j.mutable_parameters(0)->set_shape(0, uint64_t{1} << 40);
                  j.mutable_parameters(0)->set_shape(1, uint64_t{1} << 40);
                }),
      Registers("two parameters of one name", kInvalid, "is there twice, must be unique",
                [](auto& j) { j.mutable_parameters(1)->set_name(j.parameters(0).name()); }),
      Registers("learning rate that is no number", kInvalid, "lr is nan",
                [](auto& j) { j.mutable_groups(0)->set_lr(kNan); }),
      Registers("norm limit below zero", kInvalid, "max_grad_norm is -1",
                [](auto& j) { j.set_max_grad_norm(-1); }),
      Registers("unknown policy", kInvalid, "worker_loss is 9, must be one of wait, shrink, fail",
                [](auto& j) { j.set_worker_loss(static_cast<v1::WorkerLossPolicy>(9)); }),
      Registers("pattern that never ends", kInvalid, "name_regex",
                [](auto& j) {
                  v1::RoutingRule& rule = *j.add_routing_rules();
                  rule.set_name("r");
                  rule.set_group("adamw");
                  rule.set_name_regex("((a{1,100}){1,100}){1,100}");
                }),
      Registers("another job of the same name", StatusCode::ALREADY_EXISTS,
                "differs: ", [](auto& j) { j.set_max_grad_norm(3); }),
      {"question about another job", StatusCode::NOT_FOUND, "job \"other\": the job here is",
       [](ByzantinePeer& peer) { return peer.GetJob("other"); }},
  };
}

Behaviours OfJoining() {
  return {
      Joins("rank that is not there", kInvalid, "rank is 2, must be 0 .. 1",
            [](auto& r) { r.set_rank(2); }),
      Joins("largest rank", kInvalid, "rank is 4294967295", [](auto& r) { r.set_rank(~0u); }),
      Joins("no nonce", kInvalid, "process_nonce is 0", [](auto& r) { r.set_process_nonce(0); }),
      Joins("invented attempt", StatusCode::ABORTED, "rank 1 was taken by another process",
            [](auto& r) {
              r.set_process_nonce(5);
              r.mutable_previous_attempt();
            }),
      Joins("attempt of a coordinator to come", StatusCode::UNAVAILABLE, "previous_attempt is",
            [](auto& r) { r.mutable_previous_attempt()->mutable_ballot()->set_counter(1u << 30); }),
      Awaits("stream of a rank that is not there", kInvalid, "rank is 4, must be 0 .. 1",
             [](auto& r) { r.set_rank(4); }),
      Awaits("stream without an attempt", StatusCode::ABORTED, "join again",
             [](auto& r) { r.clear_attempt(); }),
      Awaits("stream of a step to come", StatusCode::UNAVAILABLE,
             "step 5 awaited, the next one is 1", [](auto& r) { r.set_step(5); }),
      Awaits("stream of another job", StatusCode::NOT_FOUND, "\"x\"",
             [](auto& r) { r.set_job("x"); }),
  };
}

Behaviours OfBeginning() {
  const auto weight = [](const char* name, double value) {
    return Begins(name, kInvalid, "token_weight is",
                  [value](auto& r) { r.set_token_weight(value); });
  };
  const auto multiplier = [](const char* name, double value, const char* names) {
    return Begins(name, kInvalid, names,
                  [value](auto& r) { r.set_learning_rate_multiplier(value); });
  };
  return {
      weight("weight of nothing", 0),
      weight("weight below nothing", -1),
      weight("weight that is no number", kNan),
      weight("weight without bounds", kInfinity),
      weight("weight beyond 2^40", 2199023255552.0),
      Begins("too many micro-batches", kInvalid, "micro_batches is 1025, must be 1 .. 1024",
             [](auto& r) { r.set_micro_batches(1025); }),
      multiplier("multiplier that is no number", kNan, "learning_rate_multiplier is nan"),
      multiplier("multiplier below zero", -1, "learning_rate_multiplier is -1"),
      multiplier("multiplier that overflows", 1e300, "learning_rate_multiplier 1e+300"),
      Begins("step begun twice with other values", StatusCode::ALREADY_EXISTS,
             "rank 1 has begun step 1", [](auto& r) { r.set_token_weight(9); }),
      Begins("weights that are rank 0's to load", kInvalid, "rank is 1, step 0",
             [](auto& r) { r.set_step(0); }),
      Begins("step to come", StatusCode::UNAVAILABLE, "step 9 begun, expecting 1",
             [](auto& r) { r.set_step(9); }),
      Begins("step of another rank", StatusCode::ABORTED, "rank 0: attempt is",
             [](auto& r) { r.set_rank(0); }),
      Begins("step of another process", StatusCode::ABORTED, "rank 1 was taken",
             [](auto& r) { r.set_process_nonce(5); }),
      Begins("step of another job", StatusCode::NOT_FOUND, "\"x\"",
             [](auto& r) { r.set_job("x"); }),
  };
}

Behaviours OfOpening() {
  return {
      Opens("push to another job", StatusCode::NOT_FOUND, "job 'x' pushed, this shard holds 'tiny'",
            [](auto& o) { o.set_job("x"); }),
      Opens("push on a timeline that is over", StatusCode::FAILED_PRECONDITION,
            "timeline 0 pushed, expecting 1", [](auto& o) { o.set_timeline(0); }),
      Opens("push on a timeline to come", StatusCode::UNAVAILABLE, "timeline 7 pushed, expecting 1",
            [](auto& o) { o.set_timeline(7); }),
      Opens("push of a past step", StatusCode::FAILED_PRECONDITION, "step 0 pushed, expecting 1",
            [](auto& o) { o.set_step(0); }),
      Opens("push of a step to come", StatusCode::UNAVAILABLE, "step 2 pushed, expecting 1",
            [](auto& o) { o.set_step(2); }),
      Opens("push of the last step there could be", StatusCode::UNAVAILABLE, "expecting 1",
            [](auto& o) { o.set_step(kHuge); }),
      Opens("push of a rank that is not there", kInvalid,
            "rank 2 pushed, which takes no part in step 1", [](auto& o) { o.set_rank(2); }),
      Opens("push of another attempt", StatusCode::ABORTED, "of rank 1 pushed, the plan has",
            [](auto& o) { o.mutable_attempt()->set_number(9999); }),
      Opens("push of a round to come", StatusCode::UNAVAILABLE, "this shard has accepted ballot",
            [](auto& o) {
              *o.mutable_ballot() = o.attempt().ballot();
              o.set_round(1000);
            }),
      {"chunk before open", kInvalid, "the first message is a chunk, expecting open",
       [](ByzantinePeer& peer) { return peer.Push({peer.Chunk(kBias)}); }},
      {"open twice", kInvalid, "open was sent twice",
       [](ByzantinePeer& peer) {
         return peer.Push({peer.Open(), peer.Open()});
       }},
      {"message of nothing", kInvalid, "0 of open, finish, chunk and pieces are set",
       [](ByzantinePeer& peer) { return peer.Push({v1::PushRequest()}); }},
      {"streams that are given up at once", StatusCode::CANCELLED, "all of them",
       [](ByzantinePeer& peer) { return peer.CancelStorm(100); }},
  };
}

Behaviours OfChunks() {
  return {
      Chunks("parameter that is not there", kInvalid, "parameter_id is 9, expecting 0 .. 4",
             [](auto& r) { r.mutable_chunk()->set_parameter_id(9); }),
      Chunks("frozen parameter", kInvalid, "parameter table is frozen",
             [](auto& r) { r.mutable_chunk()->set_parameter_id(kFrozen); }),
      Chunks("unknown type", kInvalid, "dtype 9 pushed",
             [](auto& r) { r.mutable_chunk()->set_dtype(static_cast<v1::DType>(9)); }),
      Chunks("payload of another length", kInvalid, "payload has 24 bytes, expecting 20",
             [](auto& r) { r.mutable_chunk()->set_num_elements(5); }),
      Chunks("payload of another type", kInvalid, "payload has 24 bytes, expecting 12",
             [](auto& r) { r.mutable_chunk()->set_dtype(v1::DTYPE_BFLOAT16); }),
      Chunks("chunk of nothing", kInvalid, "num_elements is 0, expecting 1 .. 262144",
             [](auto& r) {
               r.mutable_chunk()->set_num_elements(0);
               r.clear_payload();
             }),
      Chunks("number of elements beyond all bounds", kInvalid, "num_elements is",
             [](auto& r) { r.mutable_chunk()->set_num_elements(kHuge); }),
      Chunks("offset whose end overflows", kInvalid, "offset 18446744073709551615 + 6 elements",
             [](auto& r) { r.mutable_chunk()->set_offset(kHuge); }),
      Chunks("offset whose bytes overflow", kInvalid, "offset 4611686018427387904 + 6 elements",
             [](auto& r) { r.mutable_chunk()->set_offset(uint64_t{1} << 62); }),
      Chunks("more than the parameter has", kInvalid, "offset 1 + 6 elements pushed, it has 6",
             [](auto& r) { r.mutable_chunk()->set_offset(1); }),
      Chunks("micro-batch that was not declared", kInvalid, "micro-batch 7 of rank 1",
             [](auto& r) { r.mutable_chunk()->set_micro_batch(7); }),
      Chunks("flipped bit", StatusCode::DATA_LOSS, "parameter 2 micro-batch 0",
             [](auto& r) { (*r.mutable_payload())[3] ^= 1; }),
      Chunks("chunk too small to be one of many", kInvalid,
             "payload has 4 bytes, expecting at least 4096",
             [](auto& r) {
               r.mutable_chunk()->set_num_elements(1);
               r = ByzantinePeer::WithPayload(r, r.payload().substr(0, 4));
             }),
      Chunks("message of fields without names or bytes", kInvalid,
             "bytes beside payload and missing_parameters, expecting at most 131072",
             [](auto& r) {
               google::protobuf::UnknownFieldSet& unknown =
                   *r.GetReflection()->MutableUnknownFields(&r);
               for (int i = 0; i <= 1 << 16; ++i) unknown.AddLengthDelimited(6);
             }),
      Chunks("payload here and over NCCL", kInvalid, "nccl is set with 24 bytes of payload",
             [](auto& r) { r.mutable_nccl()->set_session(1); }),
      Finishes("finish that leaves everything out", kInvalid, "finished with 0 elements, expecting",
               [](auto&) {}),
      Finishes("finish that names no parameter", kInvalid, "9",
               [](auto& f) { f.add_missing_parameters(9); }),
      Finishes("finish that misses a frozen one", kInvalid, "table",
               [](auto& f) { f.add_missing_parameters(kFrozen); }),
      {"other bytes for what is there", StatusCode::ALREADY_EXISTS, "hidden.bias of rank 1",
       [](ByzantinePeer& peer) {
         const v1::PushRequest there = peer.Chunk(kBias);
         const std::string other = peer.Chunk(kEmbed).payload().substr(0, there.payload().size());
         return peer.Push({peer.Open(), there, ByzantinePeer::WithPayload(there, other)});
       }},
  };
}

// Pushes pieces of embed and hidden.bias in one message.
Behaviour Pieces(const char* name, StatusCode code, const char* names,
                 std::function<void(v1::PushRequest&)> spoil) {
  return {name, code, names, [spoil](ByzantinePeer& peer) {
            v1::PushRequest request = peer.Pieces({kEmbed, kBias});
            spoil(request);
            return peer.Push({peer.Open(), request});
          }};
}

Behaviours OfPieces() {
  return {
      Pieces("pieces of nothing, as many as a message holds", kInvalid,
             "entries, expecting 2 .. 1024",
             [](auto& r) {
               while (r.pieces_size() < (1 << 19)) r.add_pieces();
             }),
      Pieces("pieces beside a chunk", kInvalid, "2 of open, finish, chunk and pieces are set",
             [](auto& r) { *r.mutable_chunk() = r.pieces(0); }),
      Pieces("payload longer than its pieces", kInvalid, "its 2 pieces have",
             [](auto& r) { r.mutable_payload()->push_back('x'); }),
      Pieces("payload shorter than its pieces", kInvalid, "pieces[1] of parameter 2: 24 bytes",
             [](auto& r) { r.mutable_payload()->pop_back(); }),
      Pieces("payload of pieces beyond the limit", kInvalid, "bytes, expecting at most 1048576",
             [](auto& r) { r.mutable_payload()->resize((1 << 20) + 4); }),
      Pieces("piece whose bytes overflow", kInvalid, "num_elements is 18446744073709551615",
             [](auto& r) { r.mutable_pieces(1)->set_num_elements(kHuge); }),
      Pieces("flipped bit in the last piece", StatusCode::DATA_LOSS, "parameter 2 micro-batch 0",
             [](auto& r) { r.mutable_payload()->back() ^= 1; }),
  };
}

// Pushes a million of the smallest valid chunks in as few messages as possible. Each repeats the
// first one, which is valid and costs no memory. The stream ends without a finish.
grpc::Status PushMillionRepetitions(ByzantinePeer& peer) {
  constexpr int kMessages = kMillion / kMostPieces + 1;
  const std::vector<uint32_t> same(kMostPieces, kScale);
  int sent = 0;
  const grpc::Status status = peer.PushAgainAndAgain(peer.Pieces(same), kMessages, &sent);
  EXPECT_EQ(sent, kMessages);
  return status;
}

// A million chunks of one element, each in a message of its own.
grpc::Status PushMillionTiny(ByzantinePeer& peer) {
  v1::PushRequest request = peer.Chunk(kBias);
  request.mutable_chunk()->set_num_elements(1);
  request = ByzantinePeer::WithPayload(request, request.payload().substr(0, sizeof(float)));
  int sent = 0;
  const grpc::Status status = peer.PushAgainAndAgain(request, kMillion, &sent);
  // Most are never read.
  EXPECT_LT(sent, kMillion);
  return status;
}

// Returns a chunk of hidden.bias, the elements from the fourth on. The peer sends nothing else of
// its second micro-batch, and all of the first.
v1::PushRequest SecondHalf(const ByzantinePeer& peer, uint32_t micro_batch) {
  v1::PushRequest request = peer.Chunk(kBias);
  request.mutable_chunk()->set_micro_batch(micro_batch);
  request.mutable_chunk()->set_offset(3);
  request.mutable_chunk()->set_num_elements(3);
  return ByzantinePeer::WithPayload(request, request.payload().substr(3 * sizeof(float)));
}

Behaviours OfManyChunks() {
  return {
      {"gap before the first chunk", kInvalid,
       "hidden.bias of rank 1 micro-batch 1: gap: elements from 3 pushed, expecting from 0",
       [](ByzantinePeer& peer) {
         return peer.Push({peer.Open(), SecondHalf(peer, 1)});
       }},
      {"overlap with what is there", kInvalid,
       "hidden.bias of rank 1 micro-batch 0: overlap: elements 3 .. 6 pushed, elements 0 .. 6 were",
       [](ByzantinePeer& peer) {
         return peer.Push({peer.Open(), peer.Chunk(kBias), SecondHalf(peer, 0)});
       }},
  };
}

Behaviours OfPulling() {
  return {
      Pulls("pull of another job", StatusCode::NOT_FOUND, "job 'x' pulled",
            [](auto& r) { r.set_job("x"); }),
      Pulls("pull on a timeline that is over", StatusCode::FAILED_PRECONDITION,
            "timeline 0 pulled, expecting 1", [](auto& r) { r.set_timeline(0); }),
      Pulls("pull on a timeline to come", StatusCode::UNAVAILABLE, "timeline 3 pulled, expecting 1",
            [](auto& r) { r.set_timeline(3); }),
      Pulls("pull of a version to come", StatusCode::UNAVAILABLE, "version 9 pulled",
            [](auto& r) { r.set_step(9); }),
      Pulls("pull of a parameter that is not there", kInvalid, "parameter_id 7 pulled",
            [](auto& r) { r.add_parameter_ids(7); }),
      Pulls("pull of no type", kInvalid, "dtype 0 pulled", [](auto& r) { r.clear_dtype(); }),
      Pulls("pull of too many", kInvalid, "parameter_ids has 100006 entries",
            [](auto& r) {
              for (int i = 0; i < 100001; ++i) r.add_parameter_ids(0);
            }),
      {"pull that is never read", StatusCode::CANCELLED, "",
       [](ByzantinePeer& peer) { return peer.PullWithoutReading(); }},
  };
}

// Attacks on streams and their frames.
Behaviours OfStreams() {
  return {
      {"end without a finish", kInvalid, "the push stream ended without a finish",
       [](ByzantinePeer& peer) { return peer.Push({peer.Open()}); }},
      Chunks("payload over NCCL for a shard that has none", StatusCode::UNAVAILABLE,
             "this shard has no NCCL, expecting payloads",
             [](auto& r) {
               r.mutable_nccl()->set_session(1);
               r.clear_payload();
             }),
      {"compressed message", StatusCode::UNIMPLEMENTED, "",
       [](ByzantinePeer& peer) {
         v1::PushRequest request = peer.Open();
         request.mutable_open()->set_job(std::string(10000, 'a'));
         return peer.PushCompressed(request);
       }},
      {"flood of metadata", StatusCode::RESOURCE_EXHAUSTED, "",
       [](ByzantinePeer& peer) { return peer.PushWithMetadata(64 << 10); }},
      Chunks("message beyond the limit", StatusCode::RESOURCE_EXHAUSTED,
             "bytes pushed, expecting at most 1114112",
             [](auto& r) { r.set_payload(std::string(2 << 20, 'x')); }),
      {"a million tiny chunks", kInvalid, "payload has 4 bytes, expecting at least 4096",
       PushMillionTiny},
      {"a million repetitions of a tiny chunk", kInvalid, "the push stream ended without a finish",
       PushMillionRepetitions},
  };
}

// Opens a push and sends a record that no worker sends. The shard ends the whole session, so the
// message does not name the call.
Behaviour Records(const char* name, const char* names,
                  std::function<void(ByzantinePeer&, shard::ShmWorker&)> send) {
  return {name, kInvalid, names, [send](ByzantinePeer& peer) { return peer.EndSession(send); }};
}

Behaviours OfRecords() {
  Behaviours behaviours;
  for (const uint32_t kind : {0u, 2u, 4u, 5u, 6u, 7u, ~0u}) {
    behaviours.push_back(Records("record of a kind that no worker sends within a push",
                                 ", expecting 1 or 3", [kind](auto&, auto& worker) {
                                   worker.Send(static_cast<ShmRecord>(kind), worker.call(), "");
                                 }));
  }
  behaviours.push_back(
      Records("call within a call", "expecting one at a time", [](auto& peer, auto& worker) {
        worker.Send(ShmRecord::kPullRequest, worker.next_call(),
                    peer.PullRequest().SerializeAsString());
      }));
  behaviours.push_back(Records(
      "message beyond the limit", "a record of 2097152 bytes among", [](auto&, auto& worker) {
        worker.Send(ShmRecord::kPushRequest, worker.call(), std::string(2 << 20, 'x'));
      }));
  behaviours.push_back(Records("place that was never written",
                               "bytes were written, expecting a multiple of",
                               [](auto&, auto& worker) {
                                 worker.requests().places->written += uint64_t{1} << 40;
                                 worker.Ring();
                               }));
  behaviours.push_back(Records("place that goes back",
                               "bytes were written, expecting a multiple of",
                               [](auto&, auto& worker) {
                                 // This is further than the bytes that may be unread. A smaller
                                 // step would leave it to them which check refuses it.
                                 worker.requests().places->written -= uint64_t{1} << 40;
                                 worker.Ring();
                               }));
  behaviours.push_back({"body that is no message", kInvalid, "message of 3 bytes is not a",
                        [](ByzantinePeer& peer) { return peer.PushBody("\xff\xff\xff"); }});
  return behaviours;
}

std::vector<Behaviour> Joined(const std::vector<Behaviours>& parts) {
  std::vector<Behaviour> all;
  for (const Behaviours& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

std::vector<Behaviour> BehavioursOverGrpc() {
  return Joined({OfRegistration(), OfJoining(), OfBeginning(), OfOpening(), OfChunks(), OfPieces(),
                 OfManyChunks(), OfPulling(), OfStreams()});
}

std::vector<Behaviour> BehavioursOverSharedMemory() {
  return Joined({OfOpening(), OfChunks(), OfPieces(), OfManyChunks(), OfPulling(), OfRecords()});
}

}  // namespace kaon
