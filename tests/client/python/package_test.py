#!/usr/bin/python3
"""What the Python package does without a cluster: structs, definitions, arrays, errors."""

import _thread
import ctypes
import json
import re
import threading
import unittest
from unittest import mock

import kaon_package
import numpy

import kaon
from kaon import _handles, _library, _tensors, client, definition


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


if __name__ == "__main__":
    unittest.main()
