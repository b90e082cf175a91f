"""A header with the version of the file VERSION, the commit of --define=kaon_commit=HASH, and the compilation mode."""

def _version_header(ctx):
    header = ctx.actions.declare_file(ctx.attr.name + ".h")
    ctx.actions.run_shell(
        inputs = [ctx.file.version],
        outputs = [header],
        command = """
printf '#define KAON_VERSION "%s"\\n#define KAON_COMMIT "%s"\\n#define KAON_BUILD "%s"\\n' \
  "$(cat "$1")" "$2" "$3" >"$4"
""",
        arguments = [
            ctx.file.version.path,
            ctx.var.get("kaon_commit", "unknown"),
            ctx.var["COMPILATION_MODE"],
            header.path,
        ],
    )
    return [DefaultInfo(files = depset([header]))]

# The commit is no input unless a release names it: a commit alone rebuilds and tests nothing.
version_header = rule(
    implementation = _version_header,
    attrs = {"version": attr.label(allow_single_file = True)},
)
