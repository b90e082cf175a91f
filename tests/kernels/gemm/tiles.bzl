"""The variants of the tiles that tests run over."""

# Where there are tile registers; their instructions where AVX-512 is all there is; and everywhere
# without.
TILES = {
    "": [
        "//kernels/gemm:amx_gemm",
        "//kernels/gemm:amx_tiles",
    ],
    "_emulated": ["//tests/kernels/gemm:emulated_tiles"],
    "_software": ["//tests/kernels/gemm:software_tiles"],
}
