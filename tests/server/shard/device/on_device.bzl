"""Runs tests of shards once more, on a device that the host cannot touch, or on a disk."""

def on_device(tests, tags = []):
    """Adds NAME_on_device for each cc_test NAME of the package, which must use ShardMemory."""
    for test in tests:
        native.sh_test(
            name = test + "_on_device",
            size = "small",
            srcs = ["//tests/server/shard/device:on_device.sh"],
            args = ["$(rootpath :%s)" % test],
            data = [
                ":" + test,
                "//tests/server/shard/device:libkaon_fake.so",
            ],
            tags = tags,
        )

def on_nvme(tests):
    """Adds NAME_on_nvme for each cc_test NAME of the package, which must use ShardMemory."""
    for test in tests:
        native.sh_test(
            name = test + "_on_nvme",
            size = "small",
            srcs = ["//tests/server/shard/device:on_nvme.sh"],
            args = ["$(rootpath :%s)" % test],
            data = [":" + test],
        )
