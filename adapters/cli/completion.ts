import { script } from '@bomb.sh/tab'
import tab from '@bomb.sh/tab/commander'
import { Argument, type Command } from 'commander'
import { builtInFields } from '../../src/events/fields.ts'

const shells = ['bash', 'zsh', 'fish', 'powershell']

/** `fleethook completion <shell>` */
export function define(command: Command): void {
  command
    .description('Prints what makes a shell complete the commands, their options and the names of fields.')
    .addArgument(new Argument('<shell>', 'which shell').choices(shells))
    .addHelpText(
      'after',
      `
Examples, with fleethook on the PATH, and for bash the package bash-completion:
  source <(fleethook completion bash)                                    in ~/.bashrc
  source <(fleethook completion zsh)                                     in ~/.zshrc
  fleethook completion fish > ~/.config/fish/completions/fleethook.fish`,
    )
    .action((shell: string) => script(shell, 'fleethook', 'fleethook'))
}

/** What the shell calls behind the scenes: answers `fleethook complete -- <words>`, for all commands of the program. */
export function defineAnswers(program: Command): void {
  const root = tab(program)
  for (const name of ['patch', 'replace', 'default']) {
    const settings = root.commands.get(`config ${name}`)?.arguments.get('settings')
    if (settings === undefined) continue
    settings.handler = (complete) => {
      for (const field of Object.keys(builtInFields)) complete(`${field}=`, 'and an interval in seconds')
    }
  }
}
