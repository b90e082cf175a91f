"""A fuzz target: explored by libFuzzer under --config=fuzz, replayed over its corpus in every other configuration."""

# By hand (bazel test --config=fuzz), and in the suite `fuzz` of tests/nightly.sh.
SHORT_SECONDS = 10
LONG_SECONDS = 180

# In every run of the tests, without libFuzzer: blind changes of the corpus find little.
REPLAY_SECONDS = 2

def _libfuzzer_args(seconds, corpus, seed):
    return [
        # 0: another one in each run.
        "-seed=%d" % seed,
        # Longer than every file of the corpora.
        "-max_len=16384",
        # More than this at once is asked for by nothing that a refused input may cost.
        "-malloc_limit_mb=256",
        "-max_total_time=%d" % seconds,
        "-print_final_stats=1",
        # And no folder: what is found is not kept.
        "-seed_inputs=" + ",".join(["$(location %s)" % file for file in corpus]),
    ]

def fuzz_target(name, srcs, corpus, deps):
    """Two tests over one LLVMFuzzerTestOneInput; a failure prints its input, and where it was written.

    Args:
      name: `name`_test runs for seconds, `name`_fuzz (nightly) for minutes when built with --config=fuzz.
      srcs: the target.
      corpus: its files; those under corpus/found/`name`, which libFuzzer found, belong to it as well.
      deps: what it calls.
    """
    seeds = corpus + native.glob(["corpus/found/%s/*" % name])
    native.cc_library(
        name = name + "_input",
        testonly = True,
        srcs = srcs,
        linkstatic = True,
        deps = deps,
        alwayslink = True,
    )
    linkopts = select({
        ":libfuzzer": ["-fsanitize=fuzzer"],
        "//conditions:default": [],
    })
    driven = [name + "_input"] + select({
        ":libfuzzer": [],
        "//conditions:default": [":replay_main"],
    })
    native.cc_test(
        name = name + "_test",
        size = "small",
        args = select({
            ":libfuzzer": _libfuzzer_args(SHORT_SECONDS, seeds, 1),
            "//conditions:default": ["--seconds=%d" % REPLAY_SECONDS] + ["$(location %s)" % file for file in seeds],
        }),
        data = seeds,
        linkopts = linkopts,
        deps = driven,
    )
    native.cc_test(
        name = name + "_fuzz",
        size = "medium",
        args = select({
            ":libfuzzer": _libfuzzer_args(LONG_SECONDS, seeds, 0),
            "//conditions:default": [],
        }),
        data = seeds,
        linkopts = linkopts,
        tags = ["nightly"],
        deps = driven,
    )
