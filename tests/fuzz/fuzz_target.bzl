"""A fuzz target: replayed over its corpus by every test run, fuzzed by libFuzzer under --config=fuzz."""

def fuzz_target(name, srcs, corpus, deps):
    """Two tests over one LLVMFuzzerTestOneInput.

    Args:
      name: `name`_test replays, and changes what it replays, for 10 seconds; `name`_fuzz (nightly) also explores when
        built with --config=fuzz.
      srcs: the target.
      corpus: its files.
      deps: what it calls.
    """
    native.cc_test(
        name = name + "_test",
        size = "small",
        srcs = srcs,
        args = ["--seconds=10"] + ["$(location %s)" % file for file in corpus],
        data = corpus,
        deps = deps + [":replay_main"],
    )
    native.cc_test(
        name = name + "_fuzz",
        size = "medium",
        srcs = srcs,
        args = select({
            ":libfuzzer": ["-max_total_time=180", "-max_len=4096", "-print_final_stats=1"],
            "//conditions:default": [],
        }),
        linkopts = select({
            ":libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        tags = ["nightly"],
        deps = deps + select({
            ":libfuzzer": [],
            "//conditions:default": [":replay_main"],
        }),
    )
