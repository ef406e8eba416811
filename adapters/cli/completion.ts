import { script } from '@bomb.sh/tab'
import tab from '@bomb.sh/tab/commander'
import { Argument, type Command } from 'commander'
import { builtInFields } from '../../src/events/fields.ts'

const shells = ['bash', 'zsh', 'fish', 'powershell']

export function defineCompletion(command: Command): void {
  command
    .description('Prints the script with which a shell completes commands, options and field names.')
    .addArgument(new Argument('<shell>', 'the shell').choices(shells))
    .addHelpText(
      'after',
      `
fleethook must be on the PATH. In bash, what follows = or : is completed with the package bash-completion.

In ~/.bashrc:
  source <(fleethook completion bash)
In ~/.zshrc:
  source <(fleethook completion zsh)
For fish, in its folder of completions:
  fleethook completion fish > fleethook.fish`,
    )
    .action((shell: string) => {
      if (shell === 'bash') console.log(bashScript)
      else script(shell, 'fleethook', 'fleethook')
    })
}

/** Hands the words to the command as they were typed. No part of the line, and no answer, is evaluated: TAB must not run anything. */
const bashScript = `# bash completion for fleethook
__fleethook_complete() {
    local cur prev words cword out directive value
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n "=:" cur prev words cword
    else
        words=("\${COMP_WORDS[@]}") cword=$COMP_CWORD cur=\${COMP_WORDS[COMP_CWORD]}
    fi
    out=$(fleethook complete -- "\${words[@]:1:cword}" 2>/dev/null)
    directive=\${out##*:}
    out=\${out%:*}
    [[ $directive =~ ^[0-9]+$ ]] || return
    # The bits of the directive: an error, no space behind a word, no files, and the order as it is.
    (( directive & 1 )) && return
    (( directive & 2 )) && compopt -o nospace
    (( directive & 4 )) && compopt +o default
    (( directive & 32 )) && compopt -o nosort
    COMPREPLY=()
    while IFS=$'\\t' read -r value _; do
        [[ -n $value && $value == "$cur"* ]] && COMPREPLY+=("$value")
    done <<< "$out"
}
complete -F __fleethook_complete fleethook`

/** Answers `fleethook complete -- <words>`, which the script of a shell calls, for all commands of the program. */
export function defineAnswers(program: Command): void {
  const root = tab(program)
  for (const name of ['patch', 'replace', 'default']) {
    const settings = root.commands.get(`config ${name}`)?.arguments.get('settings')
    if (settings === undefined) continue
    settings.handler = (complete) => {
      for (const field of Object.keys(builtInFields)) complete(`${field}=`, 'and its interval in seconds')
    }
  }
}
