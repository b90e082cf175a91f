#include "server/admin_cli/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kaon::admin_cli {

namespace {

// Words that may follow each command, by the words of the command.
void Collect(const CLI::App& app, const std::string& path, const std::string& inherited,
             std::string* commands, std::string* words) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::string own = absl::StrJoin(flags, " ");
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string below = path.empty() ? sub->get_name() : path + " " + sub->get_name();
    names.push_back(sub->get_name());
    absl::StrAppend(commands, commands->empty() ? "" : " | ", "'", path, " ", sub->get_name(), "'");
    Collect(*sub, below, inherited + " " + own, commands, words);
  }
  absl::StrAppend(words, "    '", path, "') next='", absl::StrJoin(names, " "), " ", own, inherited,
                  "' ;;\n");
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  std::string commands;
  std::string words;
  Collect(app, "", "", &commands, &words);
  const bool is_zsh = shell == "zsh";
  // Both shells run this; `before` and `next` are no parameters of either.
  const std::string typed =
      is_zsh ? "${words[@]:1:$((CURRENT - 2))}" : "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}";
  const std::string function = absl::StrCat(
      "_kaonctl() {\n"
      "  local before= next= word\n"
      "  for word in \"",
      typed,
      "\"; do\n"
      "    case \"$before $word\" in\n"
      "      ",
      commands,
      ") before=${before:+$before }$word ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$before\" in\n",
      words, "  esac\n");
  if (!is_zsh) {
    return absl::StrCat(function,
                        "  COMPREPLY=($(compgen -W \"$next\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
                        "}\n"
                        "complete -o default -F _kaonctl kaonctl\n");
  }
  // A file _kaonctl on fpath runs as the function at the first completion; `source` defines it.
  return absl::StrCat("#compdef kaonctl\n", function,
                      "  compadd -- ${=next} || _files\n"
                      "}\n"
                      "if [ \"${funcstack[1]}\" = _kaonctl ]; then\n"
                      "  _kaonctl \"$@\"\n"
                      "else\n"
                      "  compdef _kaonctl kaonctl\n"
                      "fi\n");
}

}  // namespace kaon::admin_cli
