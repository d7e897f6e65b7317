"""`voicejobs completion`: the script that teaches a shell to complete our commands."""

import click
from click.shell_completion import get_completion_class

from voicejobs.cli.spelling import Command

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_VOICEJOBS_COMPLETE"


@click.command(
    cls=Command,
    uses_configuration=False,
    help=(
        "Print the completion script of a shell.\n\n\b\nExamples:\n"
        "  echo 'eval \"$(voicejobs completion bash)\"' >> ~/.bashrc\n"
        "  echo 'eval \"$(voicejobs completion zsh)\"' >> ~/.zshrc\n"
        "  voicejobs completion fish > ~/.config/fish/completions/voicejobs.fish"
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script."""
    completer = get_completion_class(shell)
    if completer is not None:  # click knows all of `SHELLS`
        root = click.get_current_context().find_root().command
        click.echo(completer(root, {}, "voicejobs", VARIABLE).source())
