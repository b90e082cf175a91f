"""C++ code for a set of .proto files, by Debian's protoc and grpc_cpp_plugin."""

def cc_grpc_library(name, srcs, visibility = None):
    """One cc_library with the messages and services of `srcs`.

    Args:
      name: the library's name.
      srcs: .proto files of this package; they import each other relative to this package
        (`import "kaon/v1/tensor.proto"`), and the C++ headers are included the same way.
      visibility: as for any rule.
    """
    stems = [src[:-len(".proto")] for src in srcs]
    headers = [stem + ext for stem in stems for ext in [".pb.h", ".grpc.pb.h"]]
    sources = [stem + ext for stem in stems for ext in [".pb.cc", ".grpc.pb.cc"]]
    native.genrule(
        name = name + "_generate",
        srcs = srcs,
        outs = headers + sources,
        cmd = " ".join([
            "protoc --proto_path=" + native.package_name(),
            "--cpp_out=$(RULEDIR) --grpc_out=$(RULEDIR)",
            "--plugin=protoc-gen-grpc=$$(which grpc_cpp_plugin)",
            "$(SRCS)",
        ]),
        message = "Generating C++ from " + native.package_name(),
    )
    native.genrule(
        name = name + "_describe",
        srcs = srcs,
        outs = [name + ".descriptor.bin"],
        cmd = "protoc --proto_path=" + native.package_name() +
              " --include_imports --include_source_info --descriptor_set_out=$@ $(SRCS)",
        visibility = ["//visibility:public"],
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        includes = ["."],
        visibility = visibility,
        deps = ["//bazel:grpc", "//bazel:protobuf"],
    )
