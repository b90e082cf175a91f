#!/usr/bin/python3
"""kaon.Optimizer with `aggregate`, as processes over gloo, against ranks that each push their own gradients."""

import contextlib
import os
import tempfile
import unittest

import kaon_package
import torch
import torch.distributed as dist
import torch.multiprocessing

import kaon
from kaon.data_parallel import Ranks, owners_of

SGD = {"groups": [{"name": "all", "rule": "sgd", "lr": 0.1, "sgd": {"momentum": 0.9}}], "scalar_group": "all",
       "matrix_group": "all"}
ADAMW = {"preset": "adamw", "lr": 0.01}
STEPS = 4


class Net(torch.nn.Module):
    """A head for each rank, which no other uses, a parameter that none uses, and a frozen one."""

    def __init__(self, dtype=torch.float32):
        torch.manual_seed(1)
        super().__init__()
        self.trunk = torch.nn.Linear(64, 96)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(96, 8) for _ in range(3))
        self.unused = torch.nn.Parameter(torch.ones(5))
        self.frozen = torch.nn.Parameter(torch.ones(64), requires_grad=False)
        self.to(dtype)

    def forward(self, x, rank):
        return self.heads[rank](torch.tanh(self.trunk(x * self.frozen)))


def backward(model, net, rank, step):
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(100 * step + rank)).to(net.unused.dtype)
    model(x, rank).float().square().mean().backward()


@contextlib.contextmanager
def optimizer_of(cluster, model, rank, world_size, **options):
    optimizer = kaon.Optimizer(model.named_parameters(), job="dp", rank=rank, world_size=world_size,
                               endpoints=cluster[0], tls_dir=cluster[1], **options)
    try:
        yield optimizer
    finally:
        optimizer.close()


def state_of(net):
    return {name: parameter.detach().clone() for name, parameter in net.named_parameters()}


def trained(cluster, rank, world_size, token_weight=1.0, is_ddp=False, dtype=torch.float32, **options):
    """Returns what a rank has after some steps."""
    net = Net(dtype)
    model = torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True) if is_ddp else net
    with optimizer_of(cluster, model, rank, world_size, **options) as optimizer:
        optimizer.token_weight = token_weight
        before = optimizer.client.transfer_totals()
        for step in range(STEPS):
            backward(model, net, rank, step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        after = optimizer.client.transfer_totals()
    return {"weights": state_of(net), "digest": optimizer.last_record.state_digest,
            "pushed": after["push_bytes"] - before["push_bytes"],
            "pulled": after["pull_bytes"] - before["pull_bytes"]}


def trainings(rank, world_size, clusters, runs):
    return [trained(cluster, rank, world_size, token_weight=1.0 + weighted * rank, **options)
            for cluster, (weighted, options) in zip(clusters, runs)]


def errors(rank, world_size, clusters):
    """Returns the errors of each rank, in order, and its weights after each."""
    net, raised, states = Net(), [], []
    cluster, = clusters

    def note(call):
        try:
            call()
        except kaon.Error as error:
            raised.append((type(error).__name__, str(error)))
            states.append(state_of(net))
        dist.barrier()
    for wrong in ({"world_size": world_size + 1}, {"rank": 1 - rank}, {"overlap": True}, {"aggregate": "sum"},
                  {"worker_loss": "shrink"}):
        options = {"rank": rank, "world_size": world_size, "aggregate": "reduce", **wrong, **ADAMW}
        note(lambda: optimizer_of(cluster, net, **options).__enter__())
    admin = kaon.admin.Cluster(cluster[0], tls_dir=cluster[1])
    with optimizer_of(cluster, net, rank, world_size, aggregate="reduce", **ADAMW) as optimizer:
        note(optimizer.step)
        backward(net, net, rank, 0)
        pull = optimizer.job.pull

        def fail(*_):
            raise kaon.UnavailableError("no answer")
        if rank == 1:
            optimizer.job.pull = fail
        note(optimizer.step)
        optimizer.job.pull = pull
        # The gradients were used: this one pulls.
        optimizer.step()
        assert optimizer.applied_step == 1
        states.append(state_of(net))
        if rank == 0:
            admin.checkpoints.create("first")
        dist.barrier()
        optimizer.step()
        decide, worker = optimizer._decide, optimizer.worker

        def lose_record(loss):
            decide(loss)
            raise kaon.UnavailableError("no record")
        if rank == 1:
            optimizer._decide = lose_record
        with contextlib.suppress(kaon.UnavailableError):
            optimizer.step()
        optimizer._decide = decide
        # This one pulls. A rank without the record learns the next loss scale from a join.
        optimizer.step()
        assert optimizer.applied_step == 3 and optimizer.worker is not worker
        dist.barrier()
        if rank == 0:
            admin.checkpoints.restore("first")
        dist.barrier()
        note(optimizer.step)
        optimizer.step()
    return {"raised": raised, "states": states, "step": optimizer.applied_step, "timeline": optimizer.timeline}


def run_rank(rank, world_size, folder, clusters, scenario, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    torch.save(scenario(rank, world_size, clusters, *arguments), f"{folder}/{rank}")
    dist.destroy_process_group()


class DataParallelTest(unittest.TestCase):
    def run_ranks(self, world_size, num_clusters, scenario, *arguments):
        """Returns what the scenario returns on each rank."""
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            clusters = [stack.enter_context(kaon.local_cluster(shards=1)) for _ in range(num_clusters)]
            clusters = [(cluster.endpoints, cluster.tls_dir) for cluster in clusters]
            torch.multiprocessing.spawn(run_rank, nprocs=world_size,
                                        args=(world_size, folder, clusters, scenario, arguments))
            return [torch.load(f"{folder}/{rank}") for rank in range(world_size)]

    def train(self, world_size, *runs):
        """Returns for each run what each rank has. All ranks have the same weights."""
        ranks = self.run_ranks(world_size, len(runs), trainings, runs)
        for run, results in zip(runs, zip(*ranks)):
            for result in results:
                for name, value in result["weights"].items():
                    self.assertTrue(torch.equal(value, results[0]["weights"][name]), f"{run} {name}")
        return list(zip(*ranks))

    def assert_near(self, weights, wanted, tolerance):
        self.assertEqual(weights.keys(), wanted.keys())
        for name, value in weights.items():
            error = (value.double() - wanted[name].double()).norm() / wanted[name].double().norm()
            self.assertLess(error.item(), tolerance, name)

    def test_owners_are_the_same_for_all_and_balanced_by_bytes(self):
        self.assertEqual(owners_of([8, 1, 1, 4, 4, 1], 2), [0, 0, 1, 1, 1, 0])
        self.assertEqual(owners_of([5], 3), [0])
        sizes = [1 << (index % 7) for index in range(100)]
        owners = owners_of(sizes, 8)
        owned = [sum(size for size, owner in zip(sizes, owners) if owner == rank) for rank in range(8)]
        self.assertLessEqual(max(owned) - min(owned), 1)

    def test_what_an_owner_sends_of_a_mean(self):
        for dtype, factor, wanted in ((torch.float32, 3, torch.float32), (torch.float16, 2, torch.float32),
                                      (torch.bfloat16, 3, torch.float32), (torch.bfloat16, 4, torch.bfloat16)):
            sent = Ranks._times(torch.tensor([1.5], dtype=dtype), factor)
            self.assertEqual((sent.dtype, sent.item()), (wanted, 1.5 * factor))

    def test_two_ranks_train_as_ranks_that_push_their_own(self):
        runs = self.train(2, (0, ADAMW), (0, {"aggregate": "reduce", **ADAMW}),
                          (0, {"aggregate": "averaged", "is_ddp": True, **ADAMW}))
        net = Net()
        trunk = sum(p.numel() for p in net.trunk.parameters())
        heads = 2 * sum(p.numel() for p in net.heads[0].parameters())
        own = runs[0]
        for run in runs:
            result = run[0]
            self.assert_near(result["weights"], own[0]["weights"], 1e-5)
            # A sum of two has one order.
            self.assertEqual(result["digest"], own[0]["digest"])
            self.assertFalse(torch.equal(result["weights"]["trunk.weight"], net.trunk.weight))
            self.assertTrue(torch.equal(result["weights"]["unused"], net.unused))
            # Both ranks push the trunk, or one does.
            elements = heads + (2 if run is own else 1) * trunk
            self.assertEqual(sum(rank["pushed"] for rank in run), 4 * elements * STEPS)
            pulled = sum(rank["pulled"] for rank in own) // (1 if run is own else 2)
            self.assertEqual(sum(rank["pulled"] for rank in run), pulled)

    def test_three_ranks_train_with_their_token_weights(self):
        own, reduced = self.train(3, (2, SGD), (2, {"aggregate": "reduce", **SGD}))
        self.assert_near(reduced[0]["weights"], own[0]["weights"], 1e-5)

    def test_bfloat16_gradients_are_summed_in_float32(self):
        own, reduced = self.train(2, (0, {"dtype": torch.bfloat16, **SGD}),
                                  (0, {"dtype": torch.bfloat16, "aggregate": "reduce", **SGD}))
        self.assertEqual(reduced[0]["digest"], own[0]["digest"])

    def test_errors_are_raised_on_all_ranks(self):
        ranks = self.run_ranks(2, 1, errors)
        for rank, result in enumerate(ranks):
            wanted = [("InvalidArgumentError", "world_size is 3, but the process group has 2 ranks"),
                      ("InvalidArgumentError", f"rank is {1 - rank}, .*in the process group {rank}"),
                      ("InvalidArgumentError", "overlap needs aggregate=None"),
                      ("InvalidArgumentError", "aggregate is 'sum', expecting None, 'averaged' or 'reduce'"),
                      ("InvalidArgumentError", "worker_loss is shrink"),
                      ("FailedPreconditionError", "call backward"),
                      ("UnavailableError", "no answer" if rank == 1 else "another rank of the process group failed"),
                      ("RewoundError", ".")]
            self.assertEqual([kind for kind, _ in result["raised"]], [kind for kind, _ in wanted])
            for (_, text), (_, pattern) in zip(result["raised"], wanted):
                self.assertRegex(text, pattern)
            self.assertEqual((result["step"], result["timeline"]), (2, 2))
            # Of step 1, and of the checkpoint of it.
            self.assert_near(result["states"][-1], ranks[0]["states"][-2], 1e-30)
            self.assertFalse(torch.equal(result["states"][-1]["trunk.weight"], Net().trunk.weight))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The ranks find each other without a name of this host.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    print(f"torch {torch.__version__}", flush=True)
    unittest.main(verbosity=2)
