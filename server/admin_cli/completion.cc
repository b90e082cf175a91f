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
  absl::StrAppend(words, "    '", path, "') words='", absl::StrJoin(names, " "), " ", own,
                  inherited, "' ;;\n");
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  std::string commands;
  std::string words;
  Collect(app, "", "", &commands, &words);
  return absl::StrCat(shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "",
                      "_kaonctl() {\n"
                      "  local path= words= i\n"
                      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
                      "    case \"$path ${COMP_WORDS[i]}\" in\n"
                      "      ",
                      commands,
                      ") path=${path:+$path }${COMP_WORDS[i]} ;;\n"
                      "    esac\n"
                      "  done\n"
                      "  case \"$path\" in\n",
                      words,
                      "  esac\n"
                      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
                      "}\n"
                      "complete -o default -F _kaonctl kaonctl\n");
}

}  // namespace kaon::admin_cli
