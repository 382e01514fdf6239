"""`jaxmarl-ppo completion`: completion of commands and options for a shell."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Literal

from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import Operand, options_of
from jaxmarl_ppo.cli.main import COMMANDS, module_of

Shell = Literal["bash", "zsh", "fish"]
# By shell: what completes the words of a command, `{cases}` of which are listed below.
_BASH = """\
_jaxmarl_ppo() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  [[ $COMP_CWORD == 1 ]] && words="{commands}"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _jaxmarl_ppo jaxmarl-ppo"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n" + _BASH
_IN_FISH = "complete -c jaxmarl-ppo -n '__fish_seen_subcommand_from {command}' -a '{words}'"


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script that completes commands and options in a shell.

    For bash: `jaxmarl-ppo completion bash >> ~/.bashrc`; for zsh `~/.zshrc`; for fish
    `~/.config/fish/completions/jaxmarl-ppo.fish`.

    Attributes:
        shell: name of the shell, `bash`, `zsh` or `fish`.
    """

    shell: Annotated[Shell | None, Operand("SHELL")] = None


def main(args: Sequence[str], prog: str = "jaxmarl-ppo completion") -> int:
    """Print the completion.

    Raises:
        ValueError: If the shell is missing or unknown.
    """
    options = session.parse(CompletionOptions, args, prog)
    if options.shell is None:
        raise ValueError(f"{prog} takes a shell: bash, zsh or fish")
    session.show(_script(options.shell, words_of_commands()))
    return 0


def words_of_commands() -> dict[str, list[str]]:
    """List the words that may follow each command: its options, and environments by name."""
    import jaxmarl_envs
    from jaxmarl_ppo.cli.run_options import run_options

    words = {}
    for name in COMMANDS:
        options = options_of(_options_class(importlib.import_module(module_of(name))))
        if name in ("train", "resume"):
            options += run_options()
        words[name] = [option.flag for option in options]
        words[name] += [option.off for option in options if option.arity == "switch"]
        if name in ("train", "config", "check-env", "envs"):
            words[name] += jaxmarl_envs.names()
    return words


def _options_class(module: ModuleType) -> type:
    """Find the dataclass of a command's options."""
    return next(
        each
        for name, each in vars(module).items()
        if name.endswith("Options") and getattr(each, "__module__", "") == module.__name__
    )


def _script(shell: Shell, words: dict[str, list[str]]) -> str:
    if shell == "fish":
        lines = [f"complete -c jaxmarl-ppo -n __fish_use_subcommand -a '{' '.join(words)}'"]
        lines += [_IN_FISH.format(command=name, words=" ".join(words[name])) for name in words]
        return "\n".join(lines)
    cases = "\n".join(f'    {name}) words="{" ".join(each)}";;' for name, each in words.items())
    return (_BASH if shell == "bash" else _ZSH).format(cases=cases, commands=" ".join(words))
