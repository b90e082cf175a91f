"""C++ code for .proto files, by Debian's protoc and grpc_cpp_plugin: messages and services in libraries of their own.

Files import each other, and are included, relative to the package (`import "kaon/v1/tensor.proto"`).
"""

# A library's .proto file, and those that it imports.
def _sources(name):
    return name + "_sources"

def _package_path():
    """Returns the package's folder, as seen where commands run: another repository's is in external/."""
    repository = native.repository_name()[1:]
    return ("external/" + repository + "/" if repository else "") + native.package_name()

def _generate(name, src, deps, ending, options):
    stem = src[:-len(".proto")]
    native.genrule(
        name = name + "_generate",
        srcs = [src] + [_sources(dep) for dep in deps],
        outs = [stem + ending + ".h", stem + ending + ".cc"],
        cmd = "protoc --proto_path=%s %s $(location %s)" % (_package_path(), options, src),
        message = "Generating C++ from " + src,
    )
    return stem + ending

def cc_message_library(name, src, deps = []):
    """A cc_library with the messages of one .proto file.

    Args:
      name: the library's name.
      src: the file, of this package.
      deps: libraries of this kind, of this package, with the files that it imports.
    """
    native.filegroup(
        name = _sources(name),
        srcs = [src] + [_sources(dep) for dep in deps],
    )
    stem = _generate(name, src, deps, ".pb", "--cpp_out=$(RULEDIR)")
    native.cc_library(
        name = name,
        srcs = [stem + ".cc"],
        hdrs = [stem + ".h"],
        copts = ["-w"],
        includes = ["."],
        deps = ["//bazel:protobuf"] + deps,
    )

def cc_grpc_library(name, src, messages):
    """A cc_library with the services of one .proto file; its headers are heavy.

    Args:
      name: the library's name.
      src: the file, of this package.
      messages: the cc_message_library of the same file.
    """
    stem = _generate(name, src, [messages], ".grpc.pb", "--grpc_out=$(RULEDIR) --plugin=protoc-gen-grpc=$$(which grpc_cpp_plugin)")
    native.cc_library(
        name = name,
        srcs = [stem + ".cc"],
        hdrs = [stem + ".h"],
        copts = ["-w"],
        includes = ["."],
        deps = ["//bazel:grpc", messages],
    )
