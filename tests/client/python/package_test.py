#!/usr/bin/python3
"""What the Python package does without a cluster: structs, definitions, arrays, errors."""

import _thread
import contextlib
import ctypes
import dis
import gc
import json
import os
import re
import signal
import sys
import threading
import unittest
import weakref
from unittest import mock

import kaon_package
import numpy

import kaon
from kaon import _handles, _library, _tensors, client, cluster, definition


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def recorded_structs():
    """{struct: (size, [(field, offset, size)])} of tests/client/c/abi.txt."""
    structs = {}
    for line in text_of("tests/client/c/abi.txt").splitlines():
        words = line.split()
        if len(words) == 2:
            structs[words[0]] = (int(words[1]), [])
        elif len(words) == 3:
            struct, field = words[0].split(".")
            structs[struct][1].append((field, int(words[1]), int(words[2])))
    return structs


class LibraryTest(unittest.TestCase):
    def test_structs_are_those_of_the_header(self):
        self.assertEqual(set(_library.STRUCTS), set(recorded_structs()))
        for name, (size, fields) in recorded_structs().items():
            struct = _library.STRUCTS[name]
            ours = [(field, getattr(struct, field).offset, getattr(struct, field).size) for field, _ in struct._fields_]
            self.assertEqual((ctypes.sizeof(struct), ours), (size, fields), name)

    def test_functions_are_those_of_the_header(self):
        exported = {line for line in text_of("tests/client/c/abi.txt").splitlines() if " " not in line}
        self.assertEqual(set(_library._FUNCTIONS), exported)

    def test_versions_agree(self):
        version = text_of("VERSION").strip()
        project = re.search(r'^version = "(.*)"', text_of("client/python/pyproject.toml"), re.M)
        self.assertEqual([kaon.__version__, kaon.library_version(), project.group(1)], [version] * 3)
        self.assertEqual(_library.ABI, version.rsplit(".", 1)[0])

    def test_a_missing_library_is_named(self):
        self.addCleanup(kaon_package.os.environ.__setitem__, "KAON_LIBRARY", kaon_package.os.environ["KAON_LIBRARY"])
        kaon_package.os.environ["KAON_LIBRARY"] = "/nowhere/libkaon.so"
        with self.assertRaisesRegex(kaon.NotFoundError, "/nowhere/libkaon.so.*KAON_PREFIX"):
            _library._load()


class ErrorsTest(unittest.TestCase):
    def test_each_code_of_the_header_has_a_class(self):
        enumerators = text_of("client/kaon/kaon_types.h").split("enum {")[1].split("}")[0]
        codes = re.findall(r"KAON_(\w+) = (\d+)", enumerators)
        self.assertEqual(len(codes), 16)
        for name, code in codes:
            error = kaon.errors.error_of(int(code), "words")
            self.assertEqual(type(error).__name__, name.title().replace("_", "") + "Error")
            self.assertEqual((str(error), error.code), ("words", int(code)))
            self.assertEqual(error.retriable, name in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"))


class DefinitionTest(unittest.TestCase):
    def test_writes_short_names_of_enumerators_out(self):
        text = definition.definition_json("job", {"w": (2, 3)}, {
            "groups": [{"name": "all", "rule": "muon", "muon": {"ns_dtype": "float32", "scale": "match_rms_adamw"},
                        "schedule": {"kind": "cosine", "total_steps": 9}}],
            "worker_loss": "shrink", "step_seconds": 90, "clip_scope": "CLIP_SCOPE_ALL"})
        read = json.loads(text)
        group = read["groups"][0]
        self.assertEqual((group["rule"], group["muon"]["ns_dtype"], group["muon"]["scale"], group["schedule"]["kind"]),
                         ("RULE_MUON", "NEWTON_SCHULZ_DTYPE_FLOAT32", "UPDATE_SCALE_MATCH_RMS_ADAMW",
                          "SCHEDULE_KIND_COSINE"))
        self.assertEqual((read["worker_loss"], read["clip_scope"]), ("WORKER_LOSS_POLICY_SHRINK", "CLIP_SCOPE_ALL"))
        self.assertEqual(read["parameters"], [{"name": "w", "shape": [2, 3], "dtype": "DTYPE_FLOAT32"}])
        self.assertEqual((read["world_size"], read["step_seconds"]), (1, 90))

    def test_lr_is_for_the_groups_of_the_preset(self):
        fields = {"preset": "moonlight", "lr": 0.1, "weight_decay": 0.2}
        read = json.loads(definition.definition_json("job", {}, fields))
        self.assertEqual([(g["name"], g["rule"], g["lr"], g["weight_decay"]) for g in read["groups"]],
                         [("matrices", "RULE_MUON", 0.1, 0.2), ("scalars", "RULE_ADAMW", 0.1, 0.2)])
        read = json.loads(definition.definition_json("job", {}, {"preset": "keller", "lr": {"scalars": 0.1}}))
        self.assertEqual([g.get("lr") for g in read["groups"]], [None, 0.1])
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "no group biases"):
            definition.definition_json("job", {}, {"lr": {"biases": 0.1}})
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "groups"):
            definition.definition_json("job", {}, {"lr": 0.1, "groups": [{"name": "all"}]})


def parameter_of(*shape):
    return kaon.Parameter("w", shape, 4, "all", "", 0, False, "", int(numpy.prod(shape)))


class TraceparentTest(unittest.TestCase):
    def bytes_of_begin(self, traceparent):
        """What begin() passes to the library."""
        worker, passed = client.Worker(mock.Mock(), mock.Mock(), 0), []
        worker._decided_step = 0

        def begin(kind, function, handle, options):
            passed.append(options._obj.traceparent)
            return mock.Mock()
        with mock.patch.object(client, "new_handle", side_effect=begin):
            worker.begin(1, traceparent=traceparent)
        return passed[0]

    def test_begin_passes_a_string_or_what_a_function_returns(self):
        text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        self.assertEqual(self.bytes_of_begin(text), text.encode())
        self.assertEqual(self.bytes_of_begin(lambda: text), text.encode())
        self.assertIsNone(self.bytes_of_begin(lambda: None))
        self.assertIsNone(self.bytes_of_begin(None))
        # Malformed, so the coordinator ignores it.
        self.assertEqual(self.bytes_of_begin("0\udc80"), b"0?")
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "traceparent is 7, expecting a string"):
            self.bytes_of_begin(lambda: 7)


class TensorsTest(unittest.TestCase):
    def test_sends_a_dense_array_without_a_copy_and_others_by_one(self):
        array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
        view, owner = _tensors.to_read(parameter_of(2, 3), array)
        self.assertEqual(view, (array.ctypes.data, 6, 1, 4))
        self.assertIs(owner, array)
        view, owner = _tensors.to_read(parameter_of(3, 2), array.T)
        self.assertEqual(owner.tolist(), array.T.tolist())
        self.assertEqual(view[0], owner.ctypes.data)
        self.assertTrue(owner.flags.c_contiguous)

    def test_packs_views_as_the_struct_of_the_header(self):
        packed = _tensors.pack([(1 << 40, 6, 1, 4), (3, 2, 3, 5)])
        self.assertEqual([(one.elements, one.num_elements, one.dtype, one.parameter_id) for one in packed],
                         [(1 << 40, 6, 1, 4), (3, 2, 3, 5)])

    def test_refuses_other_shapes_and_dtypes(self):
        with self.assertRaisesRegex(kaon.InvalidArgumentError, r"parameter w: shape is \[2\], expecting \[3\]"):
            _tensors.to_read(parameter_of(3), numpy.zeros(2, numpy.float32))
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "parameter w: dtype is float64"):
            _tensors.to_read(parameter_of(3), numpy.zeros(3))
        frozen = numpy.zeros(3, numpy.float32)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "parameter w: the array is read-only"):
            _tensors.to_write(parameter_of(3), frozen)

    def test_receives_into_an_array_that_is_not_dense_by_a_copy(self):
        array = numpy.zeros((3, 2), numpy.float16).T
        view, owner, is_copy = _tensors.to_write(parameter_of(2, 3), array)
        self.assertTrue(is_copy)
        self.assertEqual((view[0], view[2]), (owner.ctypes.data, 3))
        owner[...] = 7
        _tensors.write_back(array, owner)
        self.assertEqual(array.tolist(), [[7] * 3] * 2)

    def test_keeps_the_shape_of_a_scalar(self):
        self.assertEqual(_tensors.to_float32(numpy.float64(2)).shape, ())


class InterruptTest(unittest.TestCase):
    """The library's calls are stand-ins that block until the test releases them."""

    def test_ctrl_c_ends_the_wait_of_a_call_whose_objects_live_on(self):
        released, ended = threading.Event(), threading.Event()

        def blocked():
            _thread.interrupt_main()
            released.wait()
            ended.set()
        with self.assertRaises(KeyboardInterrupt):
            _handles.interruptible(blocked)
        self.assertFalse(ended.is_set())
        released.set()
        self.assertTrue(ended.wait(60))

    def test_what_an_interrupted_call_returns_is_dropped_even_if_the_traceback_is_kept(self):
        released, returned = threading.Event(), []

        def blocked():
            _thread.interrupt_main()
            released.wait()
            array = numpy.zeros(1)
            returned.append(weakref.ref(array))
            return array
        try:
            _handles.interruptible(blocked)
        except KeyboardInterrupt as error:
            kept = error
        released.set()
        for thread in threading.enumerate():
            if thread.name == "kaon-call":
                thread.join()
        self.assertIsNone(returned[0]())
        del kept

    def test_an_error_of_a_call_is_in_no_cycle(self):
        def fail():
            raise failure
        failure = OSError()
        gc.disable()
        self.addCleanup(gc.enable)
        # It is in the frame of the call.
        local = numpy.zeros(1)

        def call(array):
            _handles.interruptible(lambda: array.shape and fail())
        with contextlib.suppress(OSError):
            call(local)
        reference = weakref.ref(local)
        del local, failure, fail
        self.assertIsNone(reference())

    def test_a_join_waits_for_one_that_was_interrupted(self):
        joins, released, order = client._Joins(), threading.Event(), []

        def interrupted():
            _thread.interrupt_main()
            released.wait()
            order.append("interrupted")
        with self.assertRaises(KeyboardInterrupt):
            joins.run(interrupted)
        # This join waits for the interrupted one, and is replaced before it runs.
        ended, waiters = [], []

        def waiting(claim):
            def wait():
                try:
                    claim()
                except kaon.CancelledError as error:
                    ended.append(type(error))
            waiters.append(threading.Thread(target=wait))
            waiters[0].start()
            raise KeyboardInterrupt
        with mock.patch.object(client, "interruptible", side_effect=waiting):
            with self.assertRaises(KeyboardInterrupt):
                joins.run(lambda: order.append("never"))
        threading.Thread(target=released.set).start()
        joins.run(lambda: order.append("next"))
        waiters[0].join(60)
        self.assertEqual(ended, [kaon.CancelledError])
        self.assertEqual(order, ["interrupted", "next"])


class StandIn:
    """Functions of the library. An operation is ready once it was cancelled and awaited."""

    def __init__(self):
        self.calls = []
        # By function.
        self.threads = {}
        self.is_ready = False
        # A weak reference to the array that the library uses. The collector does not track arrays, and so does not
        # clear it early.
        self.memory = lambda: None
        # In this function Ctrl-C comes when it has filled its handle.
        self.interrupted = ""

    def __getattr__(self, function):
        if not function.startswith("kaon_"):
            raise AttributeError(function)

        name = function[len("kaon_"):]

        def call(*arguments):
            self.calls.append(name)
            self.threads[name] = threading.get_ident()
            if not name.endswith("_free"):
                arguments[-1]._obj.value = len(self.calls)
            if name == self.interrupted:
                signal.raise_signal(signal.SIGINT)
        return call

    def kaon_future_wait(self, _, timeout_ms):
        if timeout_ms < 0:
            self.calls.append("wait" if self.memory() is None else "wait with memory")
            self.is_ready = True
        return self.is_ready

    def kaon_future_cancel(self, _):
        self.calls.append("cancel")

    def kaon_future_result(self, *_):
        if "cancel" in self.calls:
            raise kaon.CancelledError("cancelled")

    def kaon_client_attach(self, _, name, to):
        self.attach_begun.set()
        self.attach_released.wait()
        self.calls.append("attach")


class StandInTest(unittest.TestCase):
    """The library is a stand-in, which ends no operation unless it is cancelled."""

    def setUp(self):
        self.library = StandIn()
        patch = mock.patch.object(_handles, "library", return_value=self.library)
        patch.start()
        self.addCleanup(patch.stop)
        # No handle of this library is freed later.
        self.addCleanup(_handles.await_dropped)
        self.addCleanup(gc.collect)

    def handle(self, kind):
        return _handles.new_handle(kind, "kaon_make", None)

    def job(self):
        job = object.__new__(client.Job)
        job.name, job.client, job._handle = "job", mock.Mock(_children=weakref.WeakSet()), self.handle("job")
        job.parameters, job._by_name = [parameter_of(3)], {"w": parameter_of(3)}
        self.addCleanup(job._handle.close)
        return job

    def worker(self):
        worker = client.Worker(self.job(), self.handle("worker"), 0)
        worker._decided_step = 0
        self.addCleanup(worker.close)
        return worker

    def step(self):
        step = client.Step(self.worker(), self.handle("step"))
        step._kept.append(numpy.zeros(3, numpy.float32))
        self.library.memory = weakref.ref(step._kept[0])
        return step

    def calls_of(self, function):
        """Calls of the library since this one."""
        return self.library.calls[self.library.calls.index(function):]


class InterruptedCallTest(StandInTest):
    def test_ctrl_c_in_finish_ends_the_step_before_its_memory_is_free(self):
        step = self.step()
        self.library.interrupted = "step_finish"
        with self.assertRaises(KeyboardInterrupt), step:
            step.finish()
        self.assertEqual(self.calls_of("step_finish"),
                         ["step_finish", "cancel", "wait with memory", "future_free", "step_free"])
        self.assertIsNone(self.library.memory())

    def test_a_step_that_was_finished_is_ended_by_close(self):
        step = self.step()
        with mock.patch.object(_handles.Future, "record", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                step.finish()
        step.close()
        self.assertEqual(self.calls_of("step_finish"), ["step_finish", "cancel", "wait with memory", "step_free"])

    def test_finish_of_a_step_that_another_thread_closes_raises_cancelled_error(self):
        step = self.step()

        def wait(_):
            other = threading.Thread(target=step.close)
            other.start()
            other.join()
        with mock.patch.object(_handles.Future, "wait", wait), self.assertRaises(kaon.CancelledError):
            step.finish()

    def test_close_waits_for_a_finish_that_another_thread_is_in(self):
        step = self.step()
        closer = threading.Thread(target=step.close)
        finish = self.library.kaon_step_finish

        def closed_meanwhile(*arguments):
            closer.start()
            closer.join(0.2)
            self.assertTrue(closer.is_alive(), "close returned while the library takes the step's arrays")
            finish(*arguments)
        self.library.kaon_step_finish = closed_meanwhile
        with self.assertRaises(kaon.CancelledError):
            step.finish()
        closer.join()
        self.assertEqual(self.calls_of("step_finish")[:3], ["step_finish", "cancel", "wait with memory"])

    def test_a_future_that_another_thread_closes_while_it_is_ended_has_ended(self):
        future = _handles.Future(object())
        future.fill("kaon_job_pull_to_device", None)
        with mock.patch.object(future, "ready", side_effect=kaon.FailedPreconditionError("the future is closed")):
            future.end()
        self.assertIsNone(future.kept)

    def test_ctrl_c_in_pull_and_load_weights_ends_them(self):
        worker = self.worker()
        for function, call in (("job_pull_to_device", lambda: worker.job.pull(1)),
                               ("worker_load_weights", lambda: worker.load_weights({"w": numpy.zeros(3)}))):
            self.library.interrupted, self.library.is_ready = function, False
            with self.assertRaises(KeyboardInterrupt):
                call()
            self.assertEqual(self.calls_of(function), [function, "cancel", "wait", "future_free"])

    def test_ctrl_c_in_begin_frees_the_step(self):
        worker = self.worker()
        self.library.interrupted = "worker_begin"
        with self.assertRaises(KeyboardInterrupt):
            worker.begin(1)
        self.assertEqual(self.calls_of("worker_begin"), ["worker_begin", "step_free"])


class FailedPullTest(StandInTest):
    """The arrays have two dtypes, so there are two futures."""

    def start_pull(self):
        job = self.job()
        job._by_name["v"] = parameter_of(3)
        return job.start_pull(1, {"w": numpy.zeros(3, numpy.float32), "v": numpy.zeros(3, numpy.float16)})

    def test_an_error_of_one_dtype_ends_the_other(self):
        def fail(future):
            future.kept = None
            raise kaon.NotFoundError("no such version")
        finish = self.start_pull()
        with mock.patch.object(_handles.Future, "result", fail), self.assertRaises(kaon.NotFoundError):
            finish()
        self.assertEqual(self.calls_of("job_pull_to_device"),
                         ["job_pull_to_device", "job_pull_to_device", "cancel", "wait"])

    def test_an_error_of_the_second_call_ends_the_first(self):
        real = self.library.kaon_job_pull_to_device

        def pull(*arguments):
            if "job_pull_to_device" in self.library.calls:
                raise kaon.NotFoundError("no such version")
            real(*arguments)
        self.library.kaon_job_pull_to_device = pull
        try:
            self.start_pull()
        except kaon.NotFoundError:
            # The futures are still in the traceback, so nothing has dropped them.
            self.assertEqual(self.calls_of("job_pull_to_device"), ["job_pull_to_device", "cancel", "wait"])
        else:
            self.fail("no error")


class DroppedHandleTest(StandInTest):
    def check_on_rewind_leaves_to_another_thread(self, function):
        """Collects garbage in on_rewind."""
        callback = _library.RewindFunction(lambda *_: gc.collect() and None)
        collected, freed = threading.Event(), threading.Event()

        def run():
            callback(None, 2, 5)
            collected.set()
            # A thread that has ended would leave its number to the other one.
            freed.wait()
        loop = threading.Thread(target=run)
        loop.start()
        collected.wait()
        _handles.await_dropped()
        freed.set()
        loop.join()
        self.assertNotEqual(self.library.threads[function], loop.ident)

    def test_a_step_that_is_collected_in_on_rewind_is_freed_by_another_thread(self):
        step = self.step()
        step.itself = step
        del step
        self.check_on_rewind_leaves_to_another_thread("step_free")
        self.assertIsNone(self.library.memory())

    def test_a_future_that_is_collected_in_on_rewind_is_awaited_by_another_thread(self):
        finish = self.job().start_pull(1, {"w": numpy.zeros(3, numpy.float32)})
        cycle = [finish]
        cycle.append(cycle)
        del finish, cycle
        self.check_on_rewind_leaves_to_another_thread("future_free")
        self.assertEqual(self.calls_of("job_pull_to_device"), ["job_pull_to_device", "cancel", "wait", "future_free"])

    def test_a_finished_step_that_is_collected_keeps_its_memory_until_it_has_ended(self):
        step = self.step()
        step._decided = _handles.Future(step._kept)
        step._decided.fill("kaon_step_finish", step._handle)
        step.itself = step
        del step
        gc.collect()
        _handles.await_dropped()
        self.assertIn("wait with memory", self.library.calls)
        self.assertIsNone(self.library.memory())

    def test_begin_waits_for_the_end_of_a_dropped_step(self):
        worker = self.worker()
        with mock.patch.object(_thread, "start_new_thread", side_effect=RuntimeError):
            step = worker.begin(1)
            del step
        worker.begin(1).close()
        self.assertEqual(self.calls_of("worker_begin"), ["worker_begin", "step_free"] * 2)


class CloseTest(StandInTest):
    def client(self):
        made = object.__new__(client.Client)
        made._handle, made._children, made.endpoints = self.handle("client"), weakref.WeakSet(), "here"
        client._open_clients.add(made)
        self.addCleanup(client._open_clients.discard, made)
        return made

    def cluster(self):
        made = object.__new__(cluster.LocalCluster)
        made.endpoints, made._owner, made._owns_directory = "here", os.getpid(), False
        made._process, made._log = mock.Mock(returncode=0), mock.Mock()
        return made

    def waits_for_calls(self, make, error):
        """Whether the end of a `with` waits for the calls of the client that still run."""
        closed = self.client()
        with mock.patch.object(closed._handle, "wait_until_freed") as wait, contextlib.suppress(error):
            with make() or closed:
                raise error
        self.assertIn("client_free", self.library.calls)
        return wait.called

    def test_the_end_of_a_with_waits_for_calls_unless_ctrl_c_interrupted_one(self):
        for make in (lambda: None, self.cluster):
            self.assertTrue(self.waits_for_calls(make, ValueError))
            self.assertFalse(self.waits_for_calls(make, KeyboardInterrupt))

    def test_a_client_in_a_forked_child_waits_for_no_call_of_the_parent(self):
        closed = self.client()
        # Of a thread that the child lacks.
        closed._handle._users.add(object())
        with mock.patch.object(_handles, "_forked_after_connect", True), \
                mock.patch.object(closed._handle._freed, "wait") as wait:
            closed.close()
        wait.assert_not_called()

    def test_ctrl_c_during_a_free_wakes_those_who_wait_for_it(self):
        handle = self.handle("client")
        self.library.interrupted = "client_free"
        with self.assertRaises(KeyboardInterrupt):
            handle.close()
        self.assertTrue(handle._freed.is_set())

    def test_a_handle_whose_close_was_interrupted_before_the_free_is_freed_when_nothing_refers_to_it(self):
        handle = self.handle("worker")
        with mock.patch.object(handle, "_free_unused", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                handle.close()
        del handle
        _handles.await_dropped()
        self.assertIn("worker_free", self.library.calls)

    def test_ctrl_c_at_any_line_of_a_free_loses_no_handle_and_frees_none_twice(self):
        code = _handles.Handle._free_unused.__code__
        lines = sorted({line for _, line in dis.findlinestarts(code) if line is not None} - {code.co_firstlineno})
        num_interrupted = 0
        for line in lines:
            interrupted, left = [], [line]

            def trace(frame, event, _):
                if event == "line" and left == [frame.f_lineno]:
                    interrupted.append(left.pop())
                    raise KeyboardInterrupt
                return trace if frame.f_code is code else None
            self.library.calls.clear()
            handle = self.handle("worker")
            before = sys.gettrace()
            sys.settrace(trace)
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    handle.close()
            finally:
                sys.settrace(before)
            del handle
            _handles.await_dropped()
            self.assertEqual(self.library.calls.count("worker_free"), 1, f"line {line}, interrupted at {interrupted}")
            num_interrupted += len(interrupted)
        self.assertGreater(num_interrupted, 3)

    def test_a_client_waits_for_the_calls_of_other_threads(self):
        closed = self.client()
        begun = self.library.attach_begun = threading.Event()
        released = self.library.attach_released = threading.Event()
        other = threading.Thread(target=_handles.call, args=("kaon_client_attach", closed._handle, b"job", None))
        other.start()
        begun.wait()

        def wait():
            released.set()
            other.join()
        with mock.patch.object(closed._handle._freed, "wait", side_effect=wait):
            closed.close()
        self.library.calls.append("closed")
        released.set()
        other.join()
        self.assertEqual(self.library.calls[-3:], ["attach", "client_free", "closed"])


if __name__ == "__main__":
    unittest.main()
