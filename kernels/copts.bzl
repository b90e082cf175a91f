"""Compiler options of the kernels."""

# Square roots and comparisons vectorize only if nobody looks at errno or floating-point traps; values are the same.
VECTOR_COPTS = [
    "-fno-math-errno",
    "-fno-trapping-math",
]

# Values that GCC's own intrinsics leave undefined on purpose.
UNDEFINED_ON_PURPOSE = [
    "-Wno-uninitialized",
    # Which clang does not know.
    "-Wno-unknown-warning-option",
    "-Wno-maybe-uninitialized",
]
