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
Examples. fleethook must be on the PATH, and bash needs the package bash-completion:
  source <(fleethook completion bash)                                    in ~/.bashrc
  source <(fleethook completion zsh)                                     in ~/.zshrc
  fleethook completion fish > ~/.config/fish/completions/fleethook.fish`,
    )
    .action((shell: string) => script(shell, 'fleethook', 'fleethook'))
}

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
