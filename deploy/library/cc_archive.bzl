"""A static library and everything of this repository that it needs as one archive, for programs outside of it."""

def _cc_archive_impl(context):
    archives = []
    options = []
    for part in context.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        archives += [library.pic_static_library or library.static_library for library in part.libraries]
        options += [option for option in part.user_link_flags if option.startswith("-l")]
    script = context.actions.declare_file(context.label.name + ".mri")
    lines = ["create " + context.outputs.archive.path]
    lines += ["addlib " + archive.path for archive in archives]
    context.actions.write(script, "\n".join(lines + ["save", "end", ""]))
    context.actions.run_shell(
        inputs = archives + [script],
        outputs = [context.outputs.archive],
        command = "ar -M <" + script.path,
        mnemonic = "CcArchive",
    )
    context.actions.write(context.outputs.options, " ".join(options) + "\n")

cc_archive = rule(
    doc = "Writes the archive, and the options (`-lname ...`) that a program needs to link it.",
    implementation = _cc_archive_impl,
    attrs = {
        "archive": attr.output(mandatory = True),
        "library": attr.label(mandatory = True, providers = [CcInfo]),
        "options": attr.output(mandatory = True),
    },
)
