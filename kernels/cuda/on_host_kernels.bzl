"""CUDA sources built for the host."""

# Suffix of a library to its defines: as it is, and with the bugs of seeded_bug.h to choose from.
SEEDED = {
    "": [],
    "_seeded": ["KAON_SEEDED_BUG=-1"],
}

def on_host_kernels(name, srcs, **kwargs):
    """A cc_library of .cu files compiled by the C++ compiler over on_host/block.h.

    Args:
      name: of the library.
      srcs: .cu files, each a translation unit.
      **kwargs: passed on to the cc_library.
    """
    units = []
    for src in srcs:
        unit = "%s_%s_on_host.cc" % (name, src.replace("/", "_").replace(".cu", ""))
        native.genrule(
            name = unit.replace(".cc", "_unit"),
            outs = [unit],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), src),
        )
        units.append(unit)
    native.cc_library(
        name = name,
        srcs = units,
        textual_hdrs = srcs,
        **kwargs
    )
